"""Turns prompts of retrieval front ends, which wrap a passage and a question, into a question and a quotation."""

import re
from dataclasses import replace

from services.planner.request import Request

_NAME = r"(?:context|text|passage|information|background|document|documents|article|excerpt|sources?|reference)"
_ASKED = r"(?:question|query|user question|q)"
_TEMPLATES = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        rf"<(?P<tag>{_NAME})>\s*(?P<context>.+?)\s*</(?P=tag)>(?P<rest>.*)",
        rf"\b{_NAME}\s*:\s*(?P<context>.{{20,}}?)\s*(?P<rest>\b{_ASKED}\s*:.+)",
        rf"\b{_NAME}\s*:\s*(?P<context>.{{20,}}[.!\"”])\s+(?P<rest>[^.!?\n]{{5,200}}[?？])\s*$",
    )
)
_QUESTION = re.compile(rf"(?:\b{_ASKED}\s*:\s*)?(?P<question>[^\n]{{3,300}}?[?？])\s*$", re.IGNORECASE)
_LONGEST = 20_000
"""Characters of a prompt that are searched."""


def unwrap(request: Request) -> Request:
    """The request with a prompt of a retrieval front end as a question and a quotation."""
    text = request.text
    if request.inputs or len(text) > _LONGEST:
        return request
    for template in _TEMPLATES:
        found = template.search(text)
        question = _QUESTION.search(found["rest"]) if found else None
        if found and question:
            context = re.sub(r"[“”\"]", "'", found["context"].strip())
            last = replace(request.conversation[-1], text=f"{question['question'].strip()} “{context}”")
            return replace(request, conversation=(*request.conversation[:-1], last))
    return request

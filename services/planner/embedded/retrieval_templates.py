"""Turns prompts of retrieval front ends, which wrap passages and a question, into a question and a quotation."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from services.planner.request import Request

_PASSAGE = (
    r"(?:contexts?|texts?|passages?|information|background|documents?|articles?|excerpts?|sources?|references?"
    r"|knowledge base|knowledge|notes|input|search results?"
    r"|kontext|dokumente?|contextes?|contextos?|documentos?|문맥|문서|上下文|文档|资料)"
)
_ASKED = r"(?:question|query|q|human|user|frage|pregunta|질문|问题)"
_ANSWER = r"(?:answer|a|assistant|response|reply|antwort|réponse|respuesta|답변|답|回答|答案)"
_BEFORE_LABEL = r"(?:(?<=[.!?\"”'’。])[ \t]|^)(?:(?!\[)[\W_]){0,8}"
"""What precedes a label: marks of headings, at the start of a line or behind a sentence."""
_ADJECTIVES = r"(?:[a-z-]{1,20} ){0,2}"
"""What may begin a label, such as "follow-up question"."""
_ANNOUNCING = r"(?:[a-z-]{1,20} ){0,3}"
"""What may begin the label of passages, such as "here is the text"."""

_FLAGS = re.IGNORECASE | re.DOTALL | re.MULTILINE
_LINE = r"[^\n]{3,300}?(?:[?？](?=\s|$)|$)"
_LABELLED_QUESTION = re.compile(
    rf"{_BEFORE_LABEL}(?P<start>{_ADJECTIVES}{_ASKED})(?: \d+)?[*_ ]{{0,3}}[:：][*_\s]*(?P<question>{_LINE})",
    _FLAGS,
)
_INSTRUCTED_QUESTION = re.compile(
    rf"{_BEFORE_LABEL}(?P<start>(?:instruction|task|request|prompt))[*_ ]{{0,3}}[:：]?[*_\s]*"
    r"(?P<question>[^\n]{3,300}[?？])[ \t]*$",
    _FLAGS,
)
"""A question where other prompts have an order."""
_TAGGED_QUESTION = re.compile(
    r"(?P<start><)(?P<tag>(?:user_|user-)?(?:question|query|input))>\s*(?P<question>.{3,300}?)\s*</(?P=tag)>", _FLAGS
)
_LAST_QUESTION = re.compile(r"(?:(?<=[.!\"”'’\]>。])\s|\n)\s*(?P<start>(?P<question>[^\n.!?]{3,200}[?？]))\s*\Z")
_ANSWER_LABEL = re.compile(
    rf"\s*(?:^[\W_]*|(?<=[.?!？])\s+){_ADJECTIVES}{_ANSWER}\b[^\n\w]*\Z", re.IGNORECASE | re.MULTILINE
)
_CONTEXTS = tuple(
    re.compile(pattern, _FLAGS)
    for pattern in (
        rf"^[ \t]*<(?P<tag>{_PASSAGE})(?: [^>]*)?>(?P<context>.+)</(?P=tag)>",
        r"^[ \t]*(?P<fence>\"{3}|'{3}|`{3}|-{5,}|={5,})[^\n]*\n(?P<context>.+?)\n[ \t]*(?P=fence)",
        rf"{_BEFORE_LABEL}{_ANNOUNCING}{_PASSAGE}(?: \d+)?[*_ ]{{0,3}}[:：](?P<context>.{{20,}})\Z",
    )
)
"""Where the passages are, the clearest sign first."""
_ANNOUNCED = re.compile(rf"\A[^\n]*\b{_PASSAGE}\b[^\n]*\n(?P<context>.{{20,}})\Z", _FLAGS)
"""Passages behind a first line that speaks of them; only before a question that is marked as one."""
_MARKS = re.compile(
    rf"</?[a-z][^<>\n]*>|\[/?(?:END )?{_PASSAGE} ?\d*\]:?|^[ \t]*[-=#*`]{{3,}}[ \t]*$|^the above is [^\n]{{1,40}}$",
    _FLAGS,
)
"""What separates passages."""
_ASKS = re.compile(
    r"(?:\w+ )?(?:what|who|whom|whose|where|when|why|which|how|is|are|was|were|does|do|did|can|could|has|have|will)\b",
    re.IGNORECASE,
)
_BLANK = re.compile(r"\n\s*\n")
_LONGEST_TAIL = 300
"""Characters at the end of a prompt that a question without a label and the label of the answer are in."""
_LONGEST = 20_000
"""Characters of a prompt that are searched."""


def unwrap(request: Request) -> Request:
    """The request with a prompt of a retrieval front end as a question and a quotation."""
    text = request.text
    if request.inputs or len(text) > _LONGEST:
        return request
    prompt = _BLANK.sub("\n\n", text.strip())
    tail = max(0, len(prompt) - _LONGEST_TAIL)
    prompt = prompt[:tail] + _ANSWER_LABEL.sub("", prompt[tail:])
    for pattern, templates in _SIGNS:
        for found in list(pattern.finditer(prompt, tail if pattern is _LAST_QUESTION else 0))[-1:]:
            before, after = prompt[: found.start("start")].rstrip(), prompt[found.end() :]
            contexts = (_plain(match["context"]) for part in (before, after) for match in _matches(templates, part))
            if context := next(filter(None, contexts), ""):
                last = replace(request.conversation[-1], text=f"{_question(found['question'])} “{context}”")
                return replace(request, conversation=(*request.conversation[:-1], last))
    return request


_SIGNS = (
    (_TAGGED_QUESTION, (*_CONTEXTS, _ANNOUNCED)),
    (_LABELLED_QUESTION, (*_CONTEXTS, _ANNOUNCED)),
    (_INSTRUCTED_QUESTION, _CONTEXTS),
    (_LAST_QUESTION, _CONTEXTS),
)
"""Questions, the clearest sign first, and where their passages may be."""


def _matches(templates: Sequence[re.Pattern[str]], part: str) -> Iterator[re.Match[str]]:
    yield from (match for template in templates if (match := template.search(part)))


def _question(words: str) -> str:
    """A question as a sentence; a noun phrase is quoted, since by its words it is none."""
    asked = words.strip(" *_\"'")
    if asked.endswith(("?", "？")):
        return asked
    question = f"{asked.rstrip('.')}?"
    return question if _ASKS.match(asked) or not asked.isascii() else f"Answer the question “{question}”"


def _plain(context: str) -> str:
    return re.sub(r"[“”\"]", "'", _MARKS.sub("", context).strip().strip('"“”'))

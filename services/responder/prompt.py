"""Builds the prompt of an answer: instructions, and the run's data, quoted and within the token budget."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files as package

import structlog

from services.llm.client import LLM, LLMError, LLMErrorReason, Message
from services.llm.prompt import Prompt, escape_markers, nonce, prompt_version, quote_data
from services.responder import evidence
from services.responder.evidence import truncate_to_tokens
from services.responder.links import AllowedLinks
from services.responder.resume import NO_CONTINUATION, resume_point
from services.responder.run_summary import RunSummary
from services.responder.template_answer import required_statements

log = structlog.get_logger(__name__)

_HERE = package("services.responder")
_ANSWER, _CHAT, _RESUME, _SCHEMA = (
    Prompt.read(_HERE / name) for name in ("prompt.md", "chat.md", "resume.md", "schema.md")
)
VERSION = prompt_version(*(prompt.version.encode() for prompt in (_ANSWER, _CHAT, _RESUME, _SCHEMA)))
"""Version of all prompts together."""

NONE = "(none)"

MIN_TOKENS = 256
"""Minimum for the data of the run; with less, the LLM is not called."""

_MARGIN = 64
"""Tokens left free for what an endpoint adds around messages."""


@dataclass(frozen=True, slots=True)
class AnswerPrompt:
    """Messages for the LLM, and the targets its answer may name."""

    messages: Sequence[Message]
    allowed: AllowedLinks


def build_prompt(summary: RunSummary, llm: LLM) -> AnswerPrompt:
    """Builds the prompt for an answer, or for the rest of one, within the context limit of the endpoint.

    Raises:
        LLMError: the context limit leaves too few tokens for the data of the run.
    """
    prompt, token = (_CHAT if summary.is_chat_only else _ANSWER), nonce()
    sent, form = _resume_messages(summary, llm), _schema_text(summary, token)
    empty = prompt.render(**{slot: token * (slot == "nonce") for slot in prompt.slots})
    frame = sum(llm.count_tokens(message.content) for message in [*empty, *sent]) + llm.count_tokens(form)
    quotes = len(prompt.slots) * llm.count_tokens(quote_data("conversation", NONE, token))
    available = llm.context_tokens - llm.answer_tokens - _MARGIN - frame - quotes
    if available < MIN_TOKENS:
        raise LLMError(
            LLMErrorReason.REFUSED,
            f"the context of {llm.context_tokens} tokens of the LLM {llm.model} is too small for a prompt with results",
        )
    material = _slot_texts(summary, llm, available)
    slots = {name: quote_data(name, material[name] or NONE, token) for name in prompt.slots - {"nonce"}}
    known_text = "\n".join([*material.values(), summary.sent])
    allowed = AllowedLinks(summary.files, known_text, about_files=not summary.is_chat_only)
    *messages, last = [*prompt.render(nonce=token, **slots), *sent]
    return AnswerPrompt([*messages, replace(last, content=f"{last.content}{form}")], allowed)


def _schema_text(summary: RunSummary, token: str) -> str:
    """Returns what the last message says about the JSON schema of the answer; empty without one."""
    if not summary.json_schema:
        return ""
    (message,) = _SCHEMA.render(schema=quote_data("schema", summary.json_schema, token))
    return f"\n\n{message.content}"


def _slot_texts(summary: RunSummary, llm: LLM, budget: int) -> Mapping[str, str]:
    """Returns the text of each slot; results get the tokens that the others leave."""
    total = budget

    def count(text: str) -> int:
        return llm.count_tokens(escape_markers(text))

    request = truncate_to_tokens(summary.request, total // 3, count)
    budget -= count(request)
    missing = truncate_to_tokens("\n".join(f"- {line}" for line in required_statements(summary)), total // 6, count)
    budget -= count(missing)
    given = evidence.files(summary.given, total // 8, count)
    budget -= count(given.text)
    before = evidence.conversation(summary.history, budget if summary.is_chat_only else total // 5, count)
    budget -= count(before.text)
    came = evidence.results(summary, budget, count)
    left_out = given.left_out + before.left_out + came.left_out
    if left_out or request != summary.request:
        log.info("answer prompt truncated", omitted=left_out, request_shortened=request != summary.request)
    return {
        "request": request,
        "undone": missing,
        "files": given.text,
        "conversation": before.text,
        "results": came.text,
    }


def _resume_messages(summary: RunSummary, llm: LLM) -> Sequence[Message]:
    """Returns the messages that make the LLM resume a partial answer; of a long one only the end."""
    end = resume_point(summary.sent)
    while llm.count_tokens(end) > (llm.context_tokens - llm.answer_tokens) // 4:
        end = end[len(end) // 4 + 1 :]
    return _RESUME.render(sent=escape_markers(end), nothing_more=NO_CONTINUATION) if end else ()

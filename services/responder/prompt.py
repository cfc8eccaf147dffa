"""The prompt for an answer: instructions, and the run as data that stays in its place and within the budget."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files as package

import structlog

from services.llm.client import LLM, LLMError, LLMErrorReason, Message
from services.llm.prompt import Prompt, escape_markers, nonce, prompt_version, quote_data
from services.responder import evidence
from services.responder.allowed_links import Known
from services.responder.resume import NOTHING_MORE, beginning
from services.responder.run_summary import Account
from services.responder.template_answer import to_be_said
from services.responder.token_budget import within

log = structlog.get_logger(__name__)

_HERE = package("services.responder")
_ANSWER, _TALK, _GOING_ON = (Prompt.read(_HERE / name) for name in ("prompt.md", "talk.md", "going_on.md"))
VERSION = prompt_version(*(prompt.version.encode() for prompt in (_ANSWER, _TALK, _GOING_ON)))
"""Of all of them."""

NONE = "(none)"

LEAST_TOKENS = 256
"""For all the material; with less an answer would be about nothing."""

_MARGIN = 64
"""Tokens left free: what an endpoint puts around messages is not known."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a model is asked, and what its answer may point to."""

    messages: Sequence[Message]
    known: Known


def question(account: Account, llm: LLM) -> Question:
    """The prompt for the account's answer, or for the rest of it, as long as the endpoint can take.

    Raises:
        LLMError: the endpoint's context has no room for it.
    """
    prompt, token = (_TALK if account.only_talk else _ANSWER), nonce()
    sent = _sent(account, llm)
    empty = prompt.render(**{slot: token * (slot == "nonce") for slot in prompt.slots})
    frame = sum(llm.count_tokens(message.content) for message in [*empty, *sent])
    quotes = len(prompt.slots) * llm.count_tokens(quote_data("conversation", NONE, token))
    room = llm.context_tokens - llm.answer_tokens - _MARGIN - frame - quotes
    if room < LEAST_TOKENS:
        raise LLMError(
            LLMErrorReason.REFUSED,
            f"a prompt of the {llm.context_tokens} tokens of {llm.model} has no room for results",
        )
    material = _material(account, llm, room)
    slots = {name: quote_data(name, material[name] or NONE, token) for name in prompt.slots - {"nonce"}}
    known = Known(account.files, "\n".join([*material.values(), account.sent]), about_files=not account.only_talk)
    return Question([*prompt.render(nonce=token, **slots), *sent], known)


def _material(account: Account, llm: LLM, budget: int) -> Mapping[str, str]:
    """What fills the slots; each takes of what those before it leave, the results the rest."""
    whole = budget

    def count(text: str) -> int:
        return llm.count_tokens(escape_markers(text))

    request = within(account.request, whole // 3, count)
    budget -= count(request)
    missing = within("\n".join(f"- {line}" for line in to_be_said(account)), whole // 6, count)
    budget -= count(missing)
    given = evidence.files(account.given, whole // 8, count)
    budget -= count(given.text)
    before = evidence.conversation(account.history, budget if account.only_talk else whole // 5, count)
    budget -= count(before.text)
    came = evidence.results(account, budget, count)
    left_out = given.left_out + before.left_out + came.left_out
    if left_out or request != account.request:
        log.info("material left out of a prompt", pieces=left_out, request_shortened=request != account.request)
    return {
        "request": request,
        "undone": missing,
        "files": given.text,
        "conversation": before.text,
        "results": came.text,
    }


def _sent(account: Account, llm: LLM) -> Sequence[Message]:
    """What makes a model go on with what was sent; of a long text the end."""
    end = beginning(account.sent)
    while llm.count_tokens(end) > (llm.context_tokens - llm.answer_tokens) // 4:
        end = end[len(end) // 4 + 1 :]
    return _GOING_ON.render(sent=escape_markers(end), nothing_more=NOTHING_MORE) if end else ()

"""Prompts of chat front ends: titles, tags and the like are answered without a run, retrieved passages become files."""

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gateway.json_encoder import dumps
from protos.hugginggpt.v1.event_pb2 import AnswerChunk, RunAccepted, RunEnded, RunEvent
from protos.hugginggpt.v1.run_pb2 import ROLE_USER, RUN_STATE_COMPLETED, RunSpec

TITLE_WORDS = 6
_MAX_TITLE = 60
_UNTITLED = "New chat"

_OPENING = re.compile(r"\s*#{1,4}\s*Task:?\s*\n", re.IGNORECASE)
"""Start of the prompt templates of Open WebUI and its derivatives."""

_HISTORY_BEGINS = re.compile(r"<chat_history>", re.IGNORECASE)
_HISTORY_ENDS = re.compile(r"</chat_history>", re.IGNORECASE)
_USER_LINE = re.compile(r"^[^\S\n]*(?:USER|Human|User)[^\S\n]*:[^\S\n]*(.+)", re.MULTILINE)
"""Matches within one line, so that blank lines cause no backtracking."""
_KEYS = re.compile(r'\{\s*"(title|tags|follow_ups|queries|prompt|text|tool_calls|emoji)"\s*:')

_EMOJI = re.compile(r"Your task is to reflect the speaker's likely facial expression through a fitting emoji\b")
_NEUTRAL_EMOJI = "💬"

_TITLE = re.compile(
    r"\b(?:title|name)\b.{0,40}\b(?:the|this|our|following)\b.{0,20}\b(?:conversation|chat|discussion|dialogue)\b"
    r"|\b(?:the|this|our|user's)\b.{0,20}\b(?:conversation|chat)\b.{0,30}\b(?:a|as a|into a)\b.{0,20}"
    r"\b(?:title|name)\b",
    re.IGNORECASE | re.DOTALL,
)
_TITLE_ORDER_CHARACTERS = 600
"""Length of the prompt's start in which a title request is searched."""


def answer(spec: RunSpec) -> str | None:
    """Returns the answer to a front end's own prompt; None for a request of a user."""
    if spec.inputs or spec.plan.tasks:
        return None
    prompt = spec.request
    if _EMOJI.match(prompt):
        return _NEUTRAL_EMOJI
    if _OPENING.match(prompt) and (key := _KEYS.search(_before_history(prompt))):
        return dumps({key[1]: _VALUES[key[1]](_first_user_message(spec))}).decode()
    if _OPENING.match(prompt) and "title" in prompt[:_TITLE_ORDER_CHARACTERS].lower():
        return _title(_first_user_message(spec))
    return _title(_first_user_message(spec)) if _is_title_request(spec) else None


def events(spec: RunSpec, text: str) -> list[RunEvent]:
    """Builds the events of a completed run with this answer."""
    run_id = f"run_shortcut{secrets.token_hex(8)}"
    recorded = (
        RunEvent(run_accepted=RunAccepted(spec=spec)),
        RunEvent(answer_chunk=AnswerChunk(text=text)),
        RunEvent(run_ended=RunEnded(state=RUN_STATE_COMPLETED)),
    )
    for number, event in enumerate(recorded, start=1):
        event.run_id, event.sequence = run_id, number
        event.time.GetCurrentTime()
    return list(recorded)


def _is_title_request(spec: RunSpec) -> bool:
    """Whether the last message requests a title for a conversation that it contains or that precedes it."""
    start = spec.request[:_TITLE_ORDER_CHARACTERS]
    has_conversation = len(spec.history) > 1 or _USER_LINE.search(spec.request) is not None
    return has_conversation and _TITLE.search(start) is not None


def _first_user_message(spec: RunSpec) -> str:
    """The first user message of the conversation."""
    quoted: Sequence[str] = _USER_LINE.findall(_history(spec.request))
    turns = [turn.text for turn in spec.history if turn.role == ROLE_USER]
    return next(iter([*quoted, *turns]), "")


def _history(prompt: str) -> str:
    """The marked history in a prompt; the whole prompt without marks."""
    begins = _HISTORY_BEGINS.search(prompt)
    ends = begins and _HISTORY_ENDS.search(prompt, begins.end())
    return prompt[begins.end() : ends.start()] if begins and ends else prompt


def _before_history(prompt: str) -> str:
    """The instructions of a prompt, without its history, which could contain the same keys."""
    begins = _HISTORY_BEGINS.search(prompt)
    return prompt[: begins.start()] if begins else prompt


def _title(topic: str) -> str:
    words = re.sub(r"[#*_`\"“”<>\[\]{}]|https?://\S+", " ", topic).split()
    title = " ".join(words[:TITLE_WORDS])[:_MAX_TITLE].rstrip(" .,;:!?")
    return title[:1].upper() + title[1:] if title else _UNTITLED


def _general(_first_user_message: str) -> list[str]:
    return ["General"]


def _none(_first_user_message: str) -> list[str]:
    return []


def _nothing(_first_user_message: str) -> str:
    return ""


_VALUES: Mapping[str, Callable[[str], object]] = {
    "title": _title,
    "tags": _general,
    "follow_ups": _none,
    "queries": _none,
    "tool_calls": _none,
    "prompt": str,
    "text": _nothing,
    "emoji": lambda _first_user_message: _NEUTRAL_EMOJI,
}


# ---------------------------------------------------------------- retrieval

_RETRIEVAL = re.compile(
    r"### Task:\s*Respond to the user query using the provided context\b|A semantic search was executed\b"
)
"""Sentences of the retrieval templates of Open WebUI and LibreChat."""

_CONTEXT_BEGINS, _CONTEXT_ENDS = "<context>", "</context>"
_SOURCE = re.compile(r"<source\b([^>]*)>(.*?)</source>", re.DOTALL)
_SOURCE_NAME = re.compile(r"\bname=\"([^\"]{1,200})\"")
_TAGS = re.compile(r"</?(?:source|source_id|source_context|contextItem|user_query|file|filename|files)\b[^<>]{0,400}>")
_CDATA = re.compile(r"<!\[CDATA\[|\]\]>")


@dataclass(frozen=True, slots=True)
class Retrieval:
    """A message that a front end built from retrieved passages.

    Args:
        question: what the user wrote; empty if the passages are a message of their own.
        passages: texts by the name of their file.
    """

    question: str
    passages: Mapping[str, str]


def read_retrieval(text: str) -> Retrieval | None:
    """Separates retrieved passages from the user's question; None for any other message."""
    if not _RETRIEVAL.search(text):
        return None
    begin, end = text.find(f"{_CONTEXT_BEGINS}\n"), text.rfind(_CONTEXT_ENDS)
    if not 0 <= begin < end:
        return None
    context = text[begin + len(_CONTEXT_BEGINS) : end]
    passages: dict[str, str] = {}
    for found in _SOURCE.finditer(context):
        named = _SOURCE_NAME.search(found[1])
        name = named[1] if named else "context"
        passages[name] = f"{passages.get(name, '')}\n\n{_plain(found[2])}".strip()
    passages = passages or {"context": _plain(context)}
    return Retrieval(_plain(text[end + len(_CONTEXT_ENDS) :]), {name: each for name, each in passages.items() if each})


def _plain(text: str) -> str:
    return _CDATA.sub("", _TAGS.sub("", text)).strip()

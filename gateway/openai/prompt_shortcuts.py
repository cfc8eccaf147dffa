"""What chat front ends ask for behind their users' backs: titles, tags, follow-ups. Answered plainly, without a run."""

import re
import secrets
from collections.abc import Callable, Mapping, Sequence

from gateway.json_encoder import dumps
from protos.hugginggpt.v1.event_pb2 import AnswerChunk, RunAccepted, RunEnded, RunEvent
from protos.hugginggpt.v1.run_pb2 import ROLE_USER, RUN_STATE_COMPLETED, RunSpec

TITLE_WORDS = 6
_LONGEST_TITLE = 60
_UNTITLED = "New chat"

_OPENING = re.compile(r"\s*#{1,4}\s*Task:?\s*\n", re.IGNORECASE)
"""How Open WebUI's templates, and those made after them, begin."""

_HISTORY_BEGINS = re.compile(r"<chat_history>", re.IGNORECASE)
_HISTORY_ENDS = re.compile(r"</chat_history>", re.IGNORECASE)
_USER_LINE = re.compile(r"^[^\S\n]*(?:USER|Human|User)[^\S\n]*:[^\S\n]*(.+)", re.MULTILINE)
"""Within one line: a blank that could be many lines would be tried from each of them."""
_KEYS = re.compile(r'\{\s*"(title|tags|follow_ups|queries|prompt|text|tool_calls|emoji)"\s*:')

_TITLE = re.compile(
    r"\b(?:title|name)\b.{0,40}\b(?:the|this|our|following)\b.{0,20}\b(?:conversation|chat|discussion|dialogue)\b"
    r"|\b(?:the|this|our|user's)\b.{0,20}\b(?:conversation|chat)\b.{0,30}\b(?:a|as a|into a)\b.{0,20}"
    r"\b(?:title|name)\b",
    re.IGNORECASE | re.DOTALL,
)
_TITLE_ORDER_CHARACTERS = 600
"""How near its beginning a prompt says that it wants a title."""


def answer(spec: RunSpec) -> str | None:
    """The plain answer to a front end's own prompt; None for what a user wants."""
    if spec.inputs or spec.plan.tasks:
        return None
    words = spec.request
    if _OPENING.match(words) and (key := _KEYS.search(words)):
        return dumps({key[1]: _VALUES[key[1]](_topic(spec))}).decode()
    if _OPENING.match(words) and "title" in words[:_TITLE_ORDER_CHARACTERS].lower():
        return _title(_topic(spec))
    return _title(_topic(spec)) if _wants_title(spec) else None


def events(spec: RunSpec, words: str) -> list[RunEvent]:
    """A run that was none."""
    run_id = f"run_errand{secrets.token_hex(8)}"
    told = (
        RunEvent(run_accepted=RunAccepted(spec=spec)),
        RunEvent(answer_chunk=AnswerChunk(text=words)),
        RunEvent(run_ended=RunEnded(state=RUN_STATE_COMPLETED)),
    )
    for number, event in enumerate(told, start=1):
        event.run_id, event.sequence = run_id, number
        event.time.GetCurrentTime()
    return list(told)


def _wants_title(spec: RunSpec) -> bool:
    """Whether the last message orders a title for a conversation it brings along, or for the one before it."""
    order = spec.request[:_TITLE_ORDER_CHARACTERS]
    brings = len(spec.history) > 1 or _USER_LINE.search(spec.request) is not None
    return brings and _TITLE.search(order) is not None


def _topic(spec: RunSpec) -> str:
    """What the user said first."""
    said: Sequence[str] = _USER_LINE.findall(_history(spec.request))
    turns = [turn.text for turn in spec.history if turn.role == ROLE_USER]
    return next(iter([*said, *turns]), "")


def _history(words: str) -> str:
    """The history that a prompt brings along; all of the prompt if it marks none."""
    begins = _HISTORY_BEGINS.search(words)
    ends = begins and _HISTORY_ENDS.search(words, begins.end())
    return words[begins.end() : ends.start()] if begins and ends else words


def _title(topic: str) -> str:
    words = re.sub(r"[#*_`\"“”<>\[\]{}]|https?://\S+", " ", topic).split()
    title = " ".join(words[:TITLE_WORDS])[:_LONGEST_TITLE].rstrip(" .,;:!?")
    return title[:1].upper() + title[1:] if title else _UNTITLED


def _general(_topic: str) -> list[str]:
    return ["General"]


def _none(_topic: str) -> list[str]:
    return []


def _nothing(_topic: str) -> str:
    return ""


_VALUES: Mapping[str, Callable[[str], object]] = {
    "title": _title,
    "tags": _general,
    "follow_ups": _none,
    "queries": _none,
    "tool_calls": _none,
    "prompt": str,
    "text": _nothing,
    "emoji": lambda _topic: "💬",
}

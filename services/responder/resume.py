"""Resumes and ends an answer of which a part was sent, after a takeover or when an LLM stops early."""

import re

from services.responder.run_summary import RunSummary
from services.responder.template_answer import (
    FAILURES_HEADING,
    render_answer,
    unmentioned_failures,
    unmentioned_results,
)

INTERRUPTED = "The answer above was interrupted;"
STOPPED_EARLY = "The model stopped here before its answer was complete;"
LENGTH_LIMIT = "The answer was truncated here, at its length limit."
FINISHED = ""
"""Reasons of an ending, which begin it."""

MIN_REPEATED_LENGTH = 8
"""Characters that count as a repetition even inside a word."""

NO_CONTINUATION = "DONE"
"""Reply of an LLM that has nothing to add."""

_MAX_WORD_FRAGMENT = 40
_SPACED_LETTER = re.compile(r"[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
"""Letter of a script that separates words by spaces."""


def ending(summary: RunSummary, reason: str, text: str) -> str:
    """Returns what follows the text sent so far: the reason, then the results and failures it does not mention.

    Args:
        summary: results of the run.
        reason: INTERRUPTED, STOPPED_EARLY, LENGTH_LIMIT or FINISHED.
        text: the answer so far.
    """
    results = unmentioned_results(summary, text) if reason in {INTERRUPTED, STOPPED_EARLY} else ()
    unmentioned = [*results, *unmentioned_failures(summary, text)]
    paragraphs = [_reason_sentence(summary, reason, bool(unmentioned)), *unmentioned] if reason else unmentioned
    return "".join(f"\n\n{paragraph}" for paragraph in paragraphs) + "\n" * bool(paragraphs or text[-1:] != "\n")


def rest_of_template_answer(summary: RunSummary) -> str | None:
    """Returns the rest of a template answer or ending that was sent in part; None if an LLM wrote what was sent."""
    if not summary.sent:
        return None
    if (answer := render_answer(summary)).startswith(summary.sent):
        return answer.removeprefix(summary.sent)
    for reason in (INTERRUPTED, STOPPED_EARLY, LENGTH_LIMIT, FINISHED):
        text, found, after = summary.sent.partition(f"\n\n{reason or FAILURES_HEADING}")
        if found and (end := ending(summary, reason, text)).startswith(found + after):
            return end.removeprefix(found + after)
    return None


def _reason_sentence(summary: RunSummary, reason: str, has_more: bool) -> str:
    if reason == LENGTH_LIMIT:
        return f"{LENGTH_LIMIT} All results are stored with the run." if summary.tasks else LENGTH_LIMIT
    if has_more:
        return f"{reason} the remaining results follow, composed without it."
    return f"{reason} {'ask again for the rest.' if summary.is_chat_only else 'all results are given above.'}"


# ---------------------------------------------------------------- answers of an LLM


def resume_point(sent: str) -> str:
    """Returns the text up to the last word boundary, where an LLM resumes best; empty if it is part of a word."""
    end = max(sent.rfind(" "), sent.rfind("\n"))
    if end >= max(0, len(sent) - _MAX_WORD_FRAGMENT):
        return sent[: end + 1]
    return "" if len(sent) < _MAX_WORD_FRAGMENT and _SPACED_LETTER.match(sent[-1:]) else sent


class RepetitionFilter:
    """Removes from the rest of an answer what repeats the text already sent.

    Args:
        sent: text already sent; empty: nothing is removed.
    """

    def __init__(self, sent: str) -> None:
        self._sent = sent
        self._buffer = ""
        self._is_decided = not sent

    def add(self, text: str) -> str:
        """Adds text and returns what can be emitted now."""
        if self._is_decided:
            return text
        self._buffer += text
        stripped = self._buffer.strip()
        if self._buffer.lstrip() in self._sent or NO_CONTINUATION.startswith(stripped.rstrip(".")):
            return ""
        return self._flush()

    def end(self) -> str:
        """Returns the text held back; no more text follows."""
        nothing = self._is_decided or self._buffer.strip().rstrip(".") in {"", NO_CONTINUATION}
        return "" if nothing else self._flush()

    def _flush(self) -> str:
        self._is_decided = True
        text = self._buffer.lstrip()
        if repeated := self._repeated_length(text):
            return text[repeated:]
        if self._sent[-1].isspace():
            return self._buffer.lstrip(" ")
        needs_space = _SPACED_LETTER.match(self._sent[-1]) and _SPACED_LETTER.match(self._buffer)
        return f" {text}" if needs_space else self._buffer

    def _repeated_length(self, text: str) -> int:
        """Returns how many characters at the start of the text repeat the end of what was sent."""
        for length in range(min(len(text), len(self._sent)), 0, -1):
            if self._sent.endswith(text[:length]) and self._is_repetition(length):
                return length
        return 0

    def _is_repetition(self, length: int) -> bool:
        before = self._sent[-length - 1 : -length]
        return length >= MIN_REPEATED_LENGTH or not (before and _SPACED_LETTER.match(before))

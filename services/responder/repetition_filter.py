"""Resumes a partial answer: removes repeated text and keeps words whole."""

import re

MIN_REPEATED_LENGTH = 8
"""Characters that count as a repetition even inside a word."""

NO_CONTINUATION = "DONE"
"""Reply of an LLM that has nothing to add."""

_MAX_WORD_FRAGMENT = 40
_SPACED_LETTER = re.compile(r"[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
"""Letter of a script that separates words by spaces."""


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

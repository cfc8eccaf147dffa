"""Removes reasoning in <think> tags, which some endpoints leave in the text."""

_OPENING, _CLOSING = "<think>", "</think>"


class ReasoningFilter:
    """Removes the reasoning before an answer from a stream."""

    def __init__(self) -> None:
        self._buffer = ""
        self._has_answer = False

    def add(self, text: str) -> str:
        """Adds text and returns what belongs to the answer."""
        if self._has_answer:
            return text
        self._buffer = (self._buffer + text).lstrip()
        if _OPENING.startswith(self._buffer[: len(_OPENING)]):
            _, ended, answer = self._buffer.partition(_CLOSING)
            self._buffer = answer.lstrip() if ended else self._buffer
            if not ended or not self._buffer:
                return ""
        self._has_answer = True
        return self._buffer

    def end(self) -> str:
        """Returns the text held back; no more text follows."""
        return "" if self._has_answer or self._buffer.startswith(_OPENING) else self._buffer

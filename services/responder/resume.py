"""An answer that goes on where it was left: nothing is said twice, and no word breaks in two."""

import re

LEAST_REPEATED = 8
"""Letters that count as a repetition wherever they begin."""

NOTHING_MORE = "DONE"
"""What a model says that has nothing to add."""

_SPACE_NEAR = 40
_SPACED = re.compile(r"[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
"""Letters of scripts that put spaces between words."""


def beginning(sent: str) -> str:
    """What was sent, up to a place between words: there a model goes on best. Of half a word nothing is left."""
    end = max(sent.rfind(" "), sent.rfind("\n"))
    if end >= max(0, len(sent) - _SPACE_NEAR):
        return sent[: end + 1]
    return "" if len(sent) < _SPACE_NEAR and _SPACED.match(sent[-1:]) else sent


class GoingOn:
    """The rest of an answer as a model writes it, without what it says again.

    Args:
        sent: what was sent before; "" lets all through.
    """

    def __init__(self, sent: str) -> None:
        self._sent = sent
        self._held = ""
        self._decided = not sent

    def add(self, text: str) -> str:
        """Takes more of the text; gives what may be shown of it by now."""
        if self._decided:
            return text
        self._held += text
        said = self._held.strip()
        if self._held.lstrip() in self._sent or NOTHING_MORE.startswith(said.rstrip(".")):
            return ""
        return self._shown()

    def end(self) -> str:
        """Gives what was still waiting."""
        nothing = self._decided or self._held.strip().rstrip(".") in {"", NOTHING_MORE}
        return "" if nothing else self._shown()

    def _shown(self) -> str:
        self._decided = True
        text = self._held.lstrip()
        if repeated := self._repeated(text):
            return text[repeated:]
        if self._sent[-1].isspace():
            return self._held.lstrip(" ")
        return f" {text}" if _SPACED.match(self._sent[-1]) and _SPACED.match(self._held) else self._held

    def _repeated(self, text: str) -> int:
        """How many letters of its beginning end what was sent, and not by chance."""
        for length in range(min(len(text), len(self._sent)), 0, -1):
            if self._sent.endswith(text[:length]) and self._meant(length):
                return length
        return 0

    def _meant(self, length: int) -> bool:
        before = self._sent[-length - 1 : -length]
        return length >= LEAST_REPEATED or not (before and _SPACED.match(before))

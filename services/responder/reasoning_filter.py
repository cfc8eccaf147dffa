"""What a model thinks aloud before it answers, which some endpoints leave in the text, is not part of the answer."""

_OPENING, _CLOSING = "<think>", "</think>"


class Thoughts:
    """Lets an answer through without the thoughts before it."""

    def __init__(self) -> None:
        self._held = ""
        self._answers = False

    def add(self, text: str) -> str:
        """Takes more of the text; gives what of it belongs to the answer."""
        if self._answers:
            return text
        self._held = (self._held + text).lstrip()
        if _OPENING.startswith(self._held[: len(_OPENING)]):
            _, ended, answer = self._held.partition(_CLOSING)
            self._held = answer.lstrip() if ended else self._held
            if not ended or not self._held:
                return ""
        self._answers = True
        return self._held

    def end(self) -> str:
        """Gives what was still waiting."""
        return "" if self._answers or self._held.startswith(_OPENING) else self._held

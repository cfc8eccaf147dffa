"""A clock that tests control."""


class Clock:
    """A clock whose time the test sets."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

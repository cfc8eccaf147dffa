"""Time for those who are given a clock."""


class Clock:
    """Time as the test sets it."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

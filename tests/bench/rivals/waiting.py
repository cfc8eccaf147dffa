"""What the rivals share."""

WAIT_SECONDS = 0.001
"""How long they wait for a batch to fill: with many callers, hardly at all is enough."""


class Nobody:
    """The callers of a batch, who are not there."""

    cancelled = False

    def progress(self, fraction: float, message: str = "") -> None: ...

"""A model's callers where there is no server."""


class Nobody:
    """The callers of a batch, who are not there."""

    cancelled = False

    def progress(self, fraction: float, message: str = "") -> None: ...

"""Call context for models that run without a server."""


class OfflineCall:
    """Call context of a batch: never cancelled, and progress is discarded."""

    cancelled = False

    def progress(self, fraction: float, message: str = "") -> None: ...

"""What a process has still to send when it ends: it has a moment for that, and does not wait for whoever is away."""

import threading
from collections.abc import Callable

SECONDS = 2.0


def flushed(shutdown: Callable[[], object]) -> None:
    """Ends something that sends what is still there, within two seconds."""
    last = threading.Thread(target=shutdown, daemon=True)
    last.start()
    last.join(SECONDS)

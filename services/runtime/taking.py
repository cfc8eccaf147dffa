"""How a server says, while a client still streams to it, that it takes what it has heard so far.

A call that it refuses has its status instead. gRPC for Python can lose that status once the client writes into a call
that is over, so a client waits for the word before it goes on.
"""

from collections.abc import Awaitable
from typing import Any

_WORD = ("hugginggpt-taken", "1")


def tell(context: Any) -> Awaitable[None]:
    """Says so, by initial metadata."""
    told: Awaitable[None] = context.send_initial_metadata((_WORD,))
    return told


async def heard(call: Any) -> bool:
    """Waits for the word; False: the call is over, or will be at once."""
    return _WORD in list(await call.initial_metadata() or ())

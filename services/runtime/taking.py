"""How a server says, while a client still streams to it, that it takes what it has heard so far.

A call that it refuses has its status instead. gRPC for Python can lose that status once the client writes into a call
that is over, so a client waits for the word before it goes on. A stream ends alike where it is complete and where its
client has gone, so its last part says that it is whole.
"""

from collections.abc import Awaitable
from typing import Any

from services.runtime.errors import InvalidRequest

_WORD = ("hugginggpt-taken", "1")


def tell(context: Any) -> Awaitable[None]:
    """Says so, by initial metadata."""
    told: Awaitable[None] = context.send_initial_metadata((_WORD,))
    return told


async def heard(call: Any) -> bool:
    """Waits for the word; False: the call is over, or will be at once."""
    return _WORD in list(await call.initial_metadata() or ())


def broken_off(what: str) -> InvalidRequest:
    """What to say of a batch that does not end as it has to."""
    remedy = "send the batch again, and at its end how many items it has"
    return InvalidRequest(what, reason="BROKEN_OFF", port="whole", remedy=remedy)

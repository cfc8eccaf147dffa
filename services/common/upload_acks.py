"""How a server says, while a client still streams to it, that it takes what it has heard so far.

A call that it refuses has its status instead. gRPC for Python can lose that status once the client writes into a call
that is over, so a client waits for the word before it goes on. A stream ends alike where it is complete and where its
client has gone, so its last part says that it is whole.
"""

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Sequence
from typing import Any

from protos.hugginggpt.v1.batch_pb2 import NewItem
from protos.hugginggpt.v1.gateway_pb2 import CreateBatchRequest
from services.common.errors import InvalidRequest

_WORD = ("hugginggpt-taken", "1")


def tell(context: Any) -> Awaitable[None]:
    """Says so, by initial metadata."""
    told: Awaitable[None] = context.send_initial_metadata((_WORD,))
    return told


async def heard(call: Any) -> bool:
    """Waits for the word; False: the call is over, or will be at once."""
    return _WORD in list(await call.initial_metadata() or ())


async def items(parts: AsyncIterable[CreateBatchRequest]) -> AsyncIterator[Sequence[NewItem]]:
    """The items of a batch behind its spec, as they come; ends well only where it is said that these are all.

    Raises:
        InvalidRequest: BROKEN_OFF, or they are followed by something else.
    """
    total, whole = 0, False
    async for part in parts:
        match part.WhichOneof("part"):
            case "items" if not whole:
                yield part.items.items
                total += len(part.items.items)
            case "whole" if part.whole.items == total:
                whole = True
            case "whole":
                raise _broken_off(f"{total} items came of {part.whole.items}")
            case _:
                raise InvalidRequest("a batch has one spec", port="spec", remedy="send items after it, then how many")
    if not whole:
        raise _broken_off("it is not said that all items have come")


def _broken_off(what: str) -> InvalidRequest:
    remedy = "send the batch again, and at its end how many items it has"
    return InvalidRequest(what, reason="BROKEN_OFF", port="whole", remedy=remedy)

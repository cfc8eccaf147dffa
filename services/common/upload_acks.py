"""Acknowledgement and completeness of client-streaming uploads.

A server acknowledges the first message of an upload by initial metadata, and the client waits for that before it sends
the rest. A rejected call ends with its status instead; gRPC for Python can lose that status if the client writes to a
call that has ended. Since a server cannot tell a complete stream from a client that has disconnected, the last message
contains the number of items.
"""

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Sequence
from typing import Any

from services.common.errors import InvalidRequest

_ACK = ("hugginggpt-taken", "1")


def send_ack(context: Any) -> Awaitable[None]:
    """Acknowledges the upload's first message."""
    sent: Awaitable[None] = context.send_initial_metadata((_ACK,))
    return sent


async def wait_for_ack(call: Any) -> bool:
    """Waits for the acknowledgement; False if the call has ended or is about to."""
    return _ACK in list(await call.initial_metadata() or ())


async def read_items(messages: AsyncIterable[Any]) -> AsyncIterator[Sequence[Any]]:
    """The items of an upload, by message, after its first message.

    Args:
        messages: with a oneof `part` of `items` (a message with repeated `items`) and `end` (their total number).

    Raises:
        InvalidRequest: BROKEN_OFF, the stream ended early; or it contains another part.
    """
    received, is_complete = 0, False
    async for message in messages:
        match message.WhichOneof("part"):
            case "items" if not is_complete:
                yield message.items.items
                received += len(message.items.items)
            case "end" if message.end.items == received:
                is_complete = True
            case "end":
                raise _incomplete(f"{received} of {message.end.items} items were received")
            case _:
                raise InvalidRequest(
                    "an upload has one spec, then items, then their number",
                    port="spec",
                    remedy="send them in this order",
                )
    if not is_complete:
        raise _incomplete("the upload ended without the number of its items")


def _incomplete(problem: str) -> InvalidRequest:
    remedy = "send the upload again, and at its end the number of items"
    return InvalidRequest(problem, reason="BROKEN_OFF", port="end", remedy=remedy)

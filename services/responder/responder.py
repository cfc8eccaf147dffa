"""The room's thinking: who writes the answer, and from where it goes on."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from services.responder.account import Account
from services.responder.composed import CONTROLLER, briefly, composed
from services.runtime.errors import InvalidRequest

LONGEST_PIECE = 800
"""Characters sent at once."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Who wrote the answer."""

    controller: str
    reason: str


Piece = str | Decision
"""What an answer is told in; a Decision comes last."""

Emit = Callable[[Piece], Awaitable[None]]


class Responder:
    """Answers requests from what came of them."""

    async def respond(self, account: Account, emit: Emit) -> None:
        """Emits the answer, or the rest of one that has begun.

        Raises:
            InvalidRequest: EMPTY, there is neither a request nor a result.
        """
        if not account.request.strip() and not account.tasks and not account.remarks and account.trouble is None:
            raise InvalidRequest(
                "there is no request to answer",
                reason="EMPTY",
                remedy="send the conversation, its last turn the request",
            )
        for piece in pieces(rest(account)):
            await emit(piece)
        await emit(Decision(CONTROLLER, "Composed from the results, without an LLM."))


def rest(account: Account) -> str:
    """The answer without what has been sent of it."""
    answer = "\n\n".join(composed(account)) + "\n"
    if answer.startswith(account.sent):
        return answer.removeprefix(account.sent)
    return "\n\n" + "\n\n".join(briefly(account)) + "\n"


def pieces(text: str) -> Iterator[str]:
    """The text in pieces that can be shown as they come: by paragraph, long ones in parts."""
    for paragraph in text.splitlines(keepends=True):
        for start in range(0, len(paragraph), LONGEST_PIECE):
            yield paragraph[start : start + LONGEST_PIECE]

"""The room's thinking: who writes the answer, from where it goes on, and what must not be missing from it."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace

import structlog

from services.common.errors import InvalidRequest
from services.llm.client import Usage
from services.responder import llm_answer, template_answer
from services.responder.finish import BROKE_OFF, CUT, FINISHED, INTERRUPTED, continued, ending, whole
from services.responder.llm_answer import Writer, Written
from services.responder.prompt import VERSION
from services.responder.run_summary import Account

log = structlog.get_logger(__name__)

LONGEST_PIECE = 800
"""Characters sent at once."""

RESERVE_SECONDS = 2.0
"""Of a call's time kept from the LLM, to compose what it did not write."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Who wrote the answer."""

    controller: str
    reason: str
    llm_model: str = ""
    fell_back_because: str = ""
    usage: Usage | None = None
    version: str = ""
    """Of the prompt by which it was written."""


Piece = str | Decision
"""What an answer is told in; a Decision comes last."""

Emit = Callable[[Piece], Awaitable[None]]


class Responder:
    """Answers requests from what came of them.

    Args:
        writer: who writes the answers; None: they are composed.
    """

    def __init__(self, writer: Writer | None) -> None:
        self._writer = writer

    async def respond(
        self, account: Account, emit: Emit, *, seconds: float | None = None, without_llm: bool = False
    ) -> None:
        """Emits the answer, or the rest of one that has begun.

        Args:
            account: what there is to tell.
            emit: told of every piece.
            seconds: how long it may take.
            without_llm: no LLM may be asked, the run has spent its tokens.

        Raises:
            InvalidRequest: EMPTY, there is neither a request nor a result.
        """
        if not account.request.strip() and not account.tasks and not account.remarks and account.trouble is None:
            raise InvalidRequest(
                "there is no request to answer",
                reason="EMPTY",
                remedy="send the conversation, its last turn the request",
            )
        account = replace(account, llm=self._writer is not None)
        if self._writer is None or without_llm or continued(account) is not None:
            await _say(rest(account), emit)
            because = "the run's tokens are spent" if without_llm and self._writer else ""
            reason = "Composed from the results, without an LLM."
            await emit(Decision(template_answer.CONTROLLER, reason, fell_back_because=because))
        else:
            await emit(await self._written(self._writer, account, emit, seconds))

    async def _written(self, writer: Writer, account: Account, emit: Emit, seconds: float | None) -> Decision:
        left = None if seconds is None else max(seconds - RESERVE_SECONDS, 0.0)
        written = await writer.write(account, emit, left)
        await _say(closing(account, written), emit)
        if not written.broken:
            reason = "Written by an LLM from the results" + (", to its limit of tokens." if written.cut else ".")
            return Decision(llm_answer.CONTROLLER, reason, writer.model, usage=written.usage, version=VERSION)
        log.info("the LLM gave no whole answer", model=writer.model, begun=bool(written.text), why=written.broken)
        reason = "Composed from the results where the LLM broke off." if written.text else "Composed from the results."
        return Decision(template_answer.CONTROLLER, reason, writer.model, written.broken, written.usage)


def rest(account: Account) -> str:
    """The answer without what has been sent of it, by the house itself."""
    begun = continued(account)
    if begun is not None:
        return begun
    return ending(account, INTERRUPTED, account.sent) if account.sent else whole(account)


def closing(account: Account, written: Written) -> str:
    """What follows on what a model wrote."""
    said = account.sent + written.text
    if written.broken:
        return ending(account, BROKE_OFF, said) if written.text else rest(account)
    return ending(account, CUT if written.cut else FINISHED, said)


async def _say(text: str, emit: Emit) -> None:
    for piece in pieces(text):
        await emit(piece)


def pieces(text: str) -> Iterator[str]:
    """The text in pieces that can be shown as they come."""
    return (text[start : start + LONGEST_PIECE] for start in range(0, len(text), LONGEST_PIECE))

"""An answer while it comes in."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from services.llm.usage import Usage

if TYPE_CHECKING:  # the openai package is loaded where an endpoint is opened
    from services.llm.request import Exchange


class Reply:
    """Iterated once, gives the text piece by piece; raises Unusable if it breaks off."""

    def __init__(self, exchange: "Exchange", usage: Callable[[str], Usage]) -> None:
        self.text = ""
        """So far."""
        self._exchange = exchange
        self._usage = usage

    @property
    def model(self) -> str:
        """As the endpoint names the one that answered."""
        return self._exchange.model

    @property
    def cut(self) -> bool:
        """The answer reached its limit of tokens before its end."""
        return self._exchange.finish == "length"

    @property
    def usage(self) -> Usage:
        """Exact at the end, if the endpoint counts; before, estimated."""
        return self._usage(self.text)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        piece = await self._exchange.piece()
        if piece is None:
            raise StopAsyncIteration
        self.text += piece
        return piece

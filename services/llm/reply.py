"""An answer while it comes in."""

from collections.abc import AsyncIterator

from services.llm.usage import Usage


class Reply:
    """Iterated once, gives the text piece by piece."""

    def __init__(self, model: str) -> None:
        self.model = model
        """As the endpoint names the one that answered."""
        self.text = ""
        """So far."""
        self.cut = False
        """The answer reached its limit of tokens before its end."""
        self.usage = Usage()
        """Exact at the end; before, estimated."""

    def __aiter__(self) -> AsyncIterator[str]:
        raise NotImplementedError

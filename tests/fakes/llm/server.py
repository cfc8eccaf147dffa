"""The scripted server: chat completions, streamed and whole, and the list of models."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

from tests.fakes.llm.turns import Script


class ScriptedLLM:
    """A server whose every answer stands in a script.

    Args:
        script: what it answers; a list that has ended answers 400.
        schema: False refuses response_format with 400.
        context: tokens (words) of the prompt it keeps, the last ones; the rest is cut silently.
        models: what it lists.
    """

    def __init__(
        self,
        script: Script,
        *,
        schema: bool = True,
        context: int | None = None,
        models: Sequence[str] = ("scripted",),
    ) -> None:
        self.base_url = ""
        """Where it listens, with /v1."""
        self.requests: list[Any] = []
        """JSON bodies of chat completions, in the order of arrival."""
        self.arrivals: asyncio.Queue[Any] = asyncio.Queue()
        """The same, for a test to wait for."""
        self.left: asyncio.Queue[Any] = asyncio.Queue()
        """Bodies of the requests whose client went before the end."""
        self.released = asyncio.Event()
        """Set by a test: what stalls goes on."""

    @classmethod
    @asynccontextmanager
    async def serving(
        cls,
        script: Script,
        *,
        schema: bool = True,
        context: int | None = None,
        models: Sequence[str] = ("scripted",),
        port: int = 0,
    ) -> AsyncIterator[Self]:
        """Serves on 127.0.0.1 until the block exits; `stop()` ends it sooner."""
        yield cls(script, schema=schema, context=context, models=models)

    async def stop(self) -> None:
        """Stops listening and drops every connection: from now on the endpoint is down."""

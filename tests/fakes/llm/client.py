"""The project's LLM client connected to a scripted server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from services.llm.client import LLM
from services.llm.settings import LlmSettings
from tests.fakes.llm.scripted_replies import Script
from tests.fakes.llm.server import ScriptedLLM


def settings(server: ScriptedLLM, **overrides: Any) -> LlmSettings:
    """LLM settings for the server: internal, with short retry delays."""
    defaults: dict[str, Any] = {"base_url": server.base_url, "model": "m", "internal": True, "retry_seconds": 0.01}
    return LlmSettings(**(defaults | overrides))


@asynccontextmanager
async def open_llm(
    script: Script, *, schema: bool = True, context: int | None = None, **overrides: Any
) -> AsyncIterator[tuple[LLM, ScriptedLLM]]:
    """Yields a client and its scripted server; further arguments are the client's settings."""
    async with (
        ScriptedLLM.serving(script, schema=schema, context=context) as server,
        LLM.open(settings(server, **overrides), role="planner") as llm,
    ):
        yield llm, server

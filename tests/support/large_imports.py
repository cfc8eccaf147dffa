"""Lists large packages that programs import: python -m tests.support.large_imports PACKAGE,... MODULE ...

Imports the modules, runs typical work, and prints which modules of the packages were imported besides.
"""

import asyncio
import sys
from contextlib import redirect_stdout, suppress
from importlib import import_module


def main(packages: list[str], modules: list[str]) -> None:
    for name in modules:
        import_module(name)
    before = _of(packages)
    with redirect_stdout(sys.stderr):  # log lines
        _plan()
        asyncio.run(_ask())
        asyncio.run(_watch())
    sys.stdout.write("\n".join(sorted(_of(packages) - before)))


def _of(packages: list[str]) -> set[str]:
    """Imported modules of these packages that have a file."""
    found = {name for name, module in list(sys.modules.items()) if getattr(module, "__file__", None)}
    return {name for name in found if name.partition(".")[0] in packages}


def _plan() -> None:
    from tests.support.plans import STANDARD, asked, planned  # noqa: PLC0415  # its imports are measured

    draft = planned(asked("Read sign.png aloud and tell me whether it sounds happy", ["sign.png"]), STANDARD)
    assert len(draft.tasks) > 1


async def _ask() -> None:
    from services.llm.client import LLMError, Message  # noqa: PLC0415  # likewise
    from tests.fakes.llm import ErrorReply, TextReply, TruncatedReply  # noqa: PLC0415  # likewise
    from tests.fakes.llm.client import open_llm  # noqa: PLC0415  # likewise

    async with open_llm([ErrorReply(503), TextReply("{}"), TruncatedReply("{"), ErrorReply(400)]) as (llm, _):
        assert (await llm.complete([Message("user", "hi")])).text == "{}"
        for _ in range(2):
            with suppress(LLMError):
                await llm.complete([Message("user", "hi")])
        assert await llm.models() == ["scripted"]


async def _watch() -> None:
    from opentelemetry import trace  # noqa: PLC0415  # likewise
    from opentelemetry.metrics import get_meter  # noqa: PLC0415  # likewise

    from services.common import metrics, tracing  # noqa: PLC0415  # likewise
    from tests.fakes.collector import collecting  # noqa: PLC0415  # likewise

    async with collecting() as collected:
        tracing.setup("rehearsal", collected.endpoint)
        async with metrics.exporting("rehearsal", "127.0.0.1:0", collected.endpoint):
            get_meter("rehearsal").create_counter("acts").add(1)
            with trace.get_tracer("rehearsal").start_as_current_span("act"):
                pass
        for end, arrived in ((tracing.shutdown, collected.spans), (metrics.shutdown, collected.metrics)):
            await asyncio.to_thread(end)
            await arrived.get()


if __name__ == "__main__":
    main(sys.argv[1].split(","), sys.argv[2:])

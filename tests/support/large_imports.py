"""Lists large packages that programs import: python -m tests.support.large_imports PACKAGE,... MODULE ...

Imports the modules, runs typical work, and prints which modules of the packages were imported during the work.
"""

import asyncio
import sys
from contextlib import redirect_stdout, suppress
from importlib import import_module


def main(packages: list[str], modules: list[str]) -> None:
    for name in modules:
        import_module(name)
    before = _imported(packages)
    with redirect_stdout(sys.stderr):  # log lines
        _plan()
        asyncio.run(_call_llm())
        asyncio.run(_export_telemetry())
    sys.stdout.write("\n".join(sorted(_imported(packages) - before)))


def _imported(packages: list[str]) -> set[str]:
    """Imported modules of these packages that have a file."""
    found = {name for name, module in list(sys.modules.items()) if getattr(module, "__file__", None)}
    return {name for name in found if name.partition(".")[0] in packages}


def _plan() -> None:
    from tests.support.plans import STANDARD, embedded_plan, plan_request  # noqa: PLC0415  # its imports are measured

    draft = embedded_plan(
        plan_request("Read sign.png aloud and tell me whether it sounds happy", ["sign.png"]), STANDARD
    )
    assert len(draft.tasks) > 1


async def _call_llm() -> None:
    from services.llm.client import LLMError, Message  # noqa: PLC0415  # likewise
    from tests.fakes.llm import ErrorReply, TextReply, TruncatedReply  # noqa: PLC0415  # likewise
    from tests.fakes.llm.client import open_llm  # noqa: PLC0415  # likewise

    async with open_llm([ErrorReply(503), TextReply("{}"), TruncatedReply("{"), ErrorReply(400)]) as (llm, _):
        assert (await llm.complete([Message("user", "hi")])).text == "{}"
        for _ in range(2):
            with suppress(LLMError):
                await llm.complete([Message("user", "hi")])
        assert await llm.models() == ["scripted"]


async def _export_telemetry() -> None:
    from opentelemetry import trace  # noqa: PLC0415  # likewise
    from opentelemetry.metrics import get_meter  # noqa: PLC0415  # likewise

    from services.common import metrics, tracing  # noqa: PLC0415  # likewise
    from tests.fakes.collector import collecting  # noqa: PLC0415  # likewise

    async with collecting() as collected:
        tracing.setup("test", collected.endpoint)
        async with metrics.exporting("test", "127.0.0.1:0", collected.endpoint):
            get_meter("test").create_counter("tests").add(1)
            with trace.get_tracer("test").start_as_current_span("test"):
                pass
        for end, arrived in ((tracing.shutdown, collected.spans), (metrics.shutdown, collected.metrics)):
            await asyncio.to_thread(end)
            await arrived.get()


if __name__ == "__main__":
    main(sys.argv[1].split(","), sys.argv[2:])

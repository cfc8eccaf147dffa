"""How much longer a run takes than the longest way through its graph, beside plain asyncio and the first HuggingGPT."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from services.runtime.channel import connect
from tests.bench.direct import Direct
from tests.bench.load import Client, calling, planned
from tests.bench.processes import staged
from tests.bench.rows import Row, median
from tests.bench.shapes import Script

REPEATS = 7
SLOW_REPEATS = 3
MS_PER_TASK = 5.0

_PACE = Script("single", 1, plan=0.05, select=0.02, expert=0.05, answer=0.05)
SCRIPTS = {
    "single": _PACE,
    "chain_8": replace(_PACE, shape="chain", size=8),
    "diamond": replace(_PACE, shape="diamond", size=4),
    "wide_8": replace(_PACE, shape="wide", size=8),
    "random_100": replace(_PACE, shape="random", size=100),
    "slow_plan": replace(_PACE, shape="chain", size=8, gap=0.06),
}

_LLM, _EXPERT = 0.3, 0.2
_JARVIS = Script("single", 1, plan=_LLM, select=_LLM, expert=_EXPERT, answer=_LLM)
JARVIS = {
    "single": (_JARVIS, 1.126, 0.825),
    "chain_4": (replace(_JARVIS, shape="chain", size=4), 4.131, 2.328),
    "wide_4": (replace(_JARVIS, shape="wide", size=4), 1.169, 0.862),
    "diamond": (replace(_JARVIS, shape="diamond", size=4), 3.137, 1.829),
    "wide_8": (replace(_JARVIS, shape="wide", size=8), 1.217, 0.920),
    "chain_8": (replace(_JARVIS, shape="chain", size=8), 8.135, 4.333),
}
"""Its medians with an LLM that takes 0.3 s and experts that take 0.2 s, where models are chosen by the LLM, and not.

JARVIS at commit c62e0fa, on two cores like ours; only the LLM and the experts were scripted.
"""


async def rows() -> list[Row]:
    """Figures of runs whose every part takes a known time."""
    with TemporaryDirectory() as home:
        async with (
            staged(Path(home)) as stage,
            calling(stage.orchestrator.address) as client,
            connect(stage.cast.address) as channel,
        ):
            measured = [await _overhead(name, script, client, Direct(channel)) for name, script in SCRIPTS.items()]
            for name, (script, with_llm, without) in JARVIS.items():
                measured.append(await _beside(f"makespan.llm_selects_{name}_s", script, with_llm, client))
                measured.append(await _beside(f"makespan.{name}_s", replace(script, select=0.0), without, client))
    return measured


async def _overhead(name: str, script: Script, client: Client, direct: Direct) -> Row:
    critical, tasks = script.critical()
    request = planned(script)
    ours = await _median(lambda: client.run(request), REPEATS)
    floor = await _median(lambda: direct.run(script), REPEATS)
    return Row(
        f"makespan.{name}_ms_per_task",
        round(1000 * (ours - critical) / tasks, 2),
        "ms",
        MS_PER_TASK,
        round(1000 * (floor - critical) / tasks, 2),
        f"{1000 * ours:.0f} ms, {ours / critical:.3f} x its critical path of {tasks}; reference: plain asyncio",
    )


async def _beside(name: str, script: Script, jarvis: float, client: Client) -> Row:
    critical, _ = script.critical()
    request = planned(script)
    ours = await _median(lambda: client.run(request), SLOW_REPEATS)
    note = f"{ours / critical:.3f} x its critical path; target and reference: JARVIS"
    return Row(name, round(ours, 3), "s", jarvis, jarvis, note)


async def _median(call: Callable[[], Awaitable[float]], repeats: int) -> float:
    return median([await call() for _ in range(repeats)], digits=6)

"""How much longer a run takes than the longest way through its graph, beside others who run the same graph.

All of them call the same scripted planner, selector, expert and responder, over the same gRPC, in the same minutes.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.load import Client, calling, planned
from tests.bench.peers.peers import FLOOR, PEERS, POLLING, Peer, attending
from tests.bench.peers.polling import lasts
from tests.bench.processes import Running, Stage, staged
from tests.bench.rows import Row, gap, median
from tests.bench.shapes import Script

REPEATS = 7
SLOW_REPEATS = 3
MS_PER_TASK = 6.0
"""The most that a run may take longer than plain asyncio, for each task of its critical path."""

_PACE = Script("single", 1, plan=0.05, select=0.02, expert=0.05, answer=0.05, pinned=False)
SCRIPTS = {
    "single": _PACE,
    "chain_8": replace(_PACE, shape="chain", size=8),
    "diamond": replace(_PACE, shape="diamond", size=4),
    "wide_8": replace(_PACE, shape="wide", size=8),
    "random_100": replace(_PACE, shape="random", size=100),
    "slow_plan": replace(_PACE, shape="chain", size=8, gap=0.06),
}
IDLE = Script("random", 100, pinned=False)
"""What is left of it is processor time."""
IDLE_RUNS = 5

_LLM, _EXPERT = 0.3, 0.2
_JARVIS = Script("single", 1, plan=_LLM, select=_LLM, expert=_EXPERT, answer=_LLM, pinned=False)
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

KEEPS = {FLOOR: "nothing is kept", "langgraph": "no checkpointer, so nothing is kept", POLLING: "nothing is kept"}
MORE = "which keeps a journal to resume from, tells events, checks ports and types, limits and retries"
"""What the orchestrator does of which the others do nothing."""


async def rows() -> list[Row]:
    """Figures of runs whose every part takes a known time."""
    with TemporaryDirectory() as home:
        async with (
            staged(Path(home)) as stage,
            calling(stage.orchestrator.address) as client,
            attending(stage.cast.address) as peers,
        ):
            measured = [await _overhead(name, script, client, peers) for name, script in SCRIPTS.items()]
            measured += await _beside(client, peers)
            measured += await _spent(stage, client, peers)
    return measured


async def _overhead(name: str, script: Script, client: Client, peers: Mapping[str, Peer]) -> Row:
    ours = await _median(client, script, REPEATS)
    floor = await peers[FLOOR].median(script, SLOW_REPEATS if name == "random_100" else REPEATS)
    return overhead_row(name, script, ours, floor)


def overhead_row(name: str, script: Script, ours: float, plain: float) -> Row:
    """Milliseconds beyond the critical path, per task on it; the target is a difference from plain asyncio.

    Args:
        name: of the shape.
        script: the run.
        ours: seconds of the run.
        plain: seconds of plain asyncio.
    """
    critical, tasks = script.critical()
    reference = round(1000 * (plain - critical) / tasks, 2)
    return Row(
        f"makespan.{name}_ms_per_task",
        round(1000 * (ours - critical) / tasks, 2),
        "ms",
        round(reference + MS_PER_TASK, 2),
        reference,
        f"{1000 * ours:.0f} ms, {ours / critical:.3f} x its critical path of {tasks}; reference: plain asyncio, "
        f"{KEEPS[FLOOR]}; target: reference + {MS_PER_TASK:g} ms",
    )


@dataclass(frozen=True)
class _Case:
    """A run that all of them make."""

    name: str
    script: Script
    published: float | None
    """What JARVIS took, where that is known."""


def _cases() -> list[_Case]:
    chosen = [_Case(f"llm_selects_{name}", script, with_llm) for name, (script, with_llm, _) in JARVIS.items()]
    plain = [_Case(name, replace(script, select=0.0), without) for name, (script, _, without) in JARVIS.items()]
    return [*chosen, *plain, _Case("random_100", SCRIPTS["random_100"], None)]


async def _beside(client: Client, peers: Mapping[str, Peer]) -> list[Row]:
    """Ours beside theirs; the polling ones do nothing but sleep, so all of those runs are made at once."""
    cases, measured = _cases(), list[Row]()
    polled = await peers[POLLING].run(*(case.script for case in cases))
    for case, slow in zip(cases, polled, strict=True):
        critical, _ = case.script.critical()
        ours = await _median(client, case.script, SLOW_REPEATS)
        measured += [_ours(case, ours, slow, critical), _polling(case, ours, slow)]
        measured += [await _other(name, case, ours, critical, peers) for name in PEERS if name != POLLING]
    return measured


def _ours(case: _Case, ours: float, slow: float, critical: float) -> Row:
    known = "its published median" if case.published else "its way of scheduling"
    note = f"{ours / critical:.3f} x its critical path; target: JARVIS, {known}; reference: its scheduling, same run"
    return Row(f"makespan.{case.name}_s", round(ours, 3), "s", case.published or round(slow, 3), round(slow, 3), note)


def _polling(case: _Case, ours: float, slow: float) -> Row:
    off = f"; JARVIS itself {case.published} s, {100 * (slow / case.published - 1):+.1f} %" if case.published else ""
    note = f"JARVIS' scheduling without its own work, by arithmetic {lasts(case.script):.3f} s{off}; reference: ours"
    return Row(f"peers.jarvis_{case.name}_s", round(slow, 3), "s", reference=round(ours, 3), note=note)


async def _other(name: str, case: _Case, ours: float, critical: float, peers: Mapping[str, Peer]) -> Row:
    row = f"peers.{name}_{case.name}_s"
    if name not in peers:
        return _absent(row, "s", name)
    theirs = await peers[name].median(case.script, 1)
    note = f"{theirs / critical:.3f} x its critical path; {KEEPS[name]}; reference: ours"
    return Row(row, round(theirs, 3), "s", reference=round(ours, 3), note=note)


async def _spent(stage: Stage, client: Client, peers: Mapping[str, Peer]) -> list[Row]:
    """Processor time, of runs in which the cast makes no pauses."""
    request = planned(IDLE)
    ours = round(await _processor(stage.orchestrator, lambda: client.run(request)), 2)
    note = f"of the orchestrator; a random graph of {len(IDLE.graph)}, models selected, the cast does nothing"
    measured = [Row("makespan.cpu_ms_per_task", ours, "ms", note=note)]
    for name in PEERS:
        row = f"peers.{'jarvis' if name == POLLING else name}_cpu_ms_per_task"
        if name in peers:
            theirs = await _processor(peers[name].running, partial(peers[name].run, IDLE))
            note = f"{KEEPS[name]}; reference: ours, {MORE}"
            measured.append(Row(row, round(theirs, 2), "ms", reference=ours, note=note))
        else:
            measured.append(_absent(row, "ms", name))
    return measured


async def _processor(process: Running, run: Callable[[], Awaitable[object]]) -> float:
    """Milliseconds of a process for each task."""
    await run()
    before = process.cpu_seconds()
    for _ in range(IDLE_RUNS):
        await run()
    return 1000 * (process.cpu_seconds() - before) / (IDLE_RUNS * len(IDLE.graph))


def _absent(row: str, unit: str, name: str) -> Row:
    return gap(row, unit, None, f"{PEERS[name]} is not installed: pip install -e '.[peers]'")


async def _median(client: Client, script: Script, repeats: int) -> float:
    request = planned(script)
    return median([await client.run(request) for _ in range(repeats)], digits=6)

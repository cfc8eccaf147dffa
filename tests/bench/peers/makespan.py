"""Makespan of a run over its critical path, compared with other programs that run the same graph.

All of them call the same scripted planner, selector, expert and responder over gRPC, alternately.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.load import Client, connected_client, planned_run
from tests.bench.peers.jarvis import jarvis_seconds
from tests.bench.peers.peers import FLOOR, PEERS, POLLING, Peer, running_peers
from tests.bench.processes import Running, Testbed, start_testbed
from tests.bench.rows import Row, gap, median
from tests.bench.shapes import Script

REPEATS = 7
SLOW_REPEATS = 3
MS_PER_TASK = 6.0
"""Target: difference from plain asyncio per task on the critical path."""

_DELAYS = Script("single", 1, plan=0.05, select=0.02, expert=0.05, answer=0.05, pinned=False)
SCRIPTS = {
    "single": _DELAYS,
    "chain_8": replace(_DELAYS, shape="chain", size=8),
    "diamond": replace(_DELAYS, shape="diamond", size=4),
    "wide_8": replace(_DELAYS, shape="wide", size=8),
    "random_100": replace(_DELAYS, shape="random", size=100),
    "slow_plan": replace(_DELAYS, shape="chain", size=8, gap=0.06),
}
IDLE = Script("random", 100, pinned=False)
"""A script without delays, which leaves only CPU time."""
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
"""Scripts, and JARVIS' median seconds with and without model selection by the LLM.

Measured with JARVIS at commit c62e0fa on two cores, with a scripted LLM that takes 0.3 s and experts that take 0.2 s.
"""

STORED = {FLOOR: "stores nothing", "langgraph": "no checkpointer, so it stores nothing", POLLING: "stores nothing"}
MORE = "which writes a journal, reports events, validates ports and types, limits and retries"
"""Work of the orchestrator that the other programs do not do."""


async def rows() -> list[Row]:
    """Figures of runs whose parts all take a known time."""
    with TemporaryDirectory() as home:
        async with (
            start_testbed(Path(home)) as testbed,
            connected_client(testbed.orchestrator.address) as client,
            running_peers(testbed.scripted.address) as peers,
        ):
            measured = [await _overhead(name, script, client, peers) for name, script in SCRIPTS.items()]
            measured += await _comparison(client, peers)
            measured += await _cpu_time(testbed, client, peers)
    return measured


async def _overhead(name: str, script: Script, client: Client, peers: Mapping[str, Peer]) -> Row:
    ours = await _median(client, script, REPEATS)
    floor = await peers[FLOOR].median(script, SLOW_REPEATS if name == "random_100" else REPEATS)
    return overhead_row(name, script, ours, floor)


def overhead_row(name: str, script: Script, ours: float, plain: float) -> Row:
    """The row of the overhead per task on the critical path, whose target is a difference from plain asyncio.

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
        f"which {STORED[FLOOR]}; target: reference + {MS_PER_TASK:g} ms",
    )


@dataclass(frozen=True)
class _Case:
    """A run that all programs make; published is JARVIS' seconds, if known."""

    name: str
    script: Script
    published: float | None


def _cases() -> list[_Case]:
    selected = [_Case(f"llm_selects_{name}", script, with_llm) for name, (script, with_llm, _) in JARVIS.items()]
    plain = [_Case(name, replace(script, select=0.0), without) for name, (script, _, without) in JARVIS.items()]
    return [*selected, *plain, _Case("random_100", SCRIPTS["random_100"], None)]


async def _comparison(client: Client, peers: Mapping[str, Peer]) -> list[Row]:
    """Runs all cases; those of the polling program are concurrent, since they only sleep."""
    cases, measured = _cases(), list[Row]()
    polled = await peers[POLLING].run(*(case.script for case in cases))
    for case, slow in zip(cases, polled, strict=True):
        critical, _ = case.script.critical()
        ours = await _median(client, case.script, SLOW_REPEATS)
        measured += [_ours(case, ours, slow, critical), _polling(case, ours, slow)]
        measured += [await _other(name, case, ours, critical, peers) for name in PEERS if name != POLLING]
    return measured


def _ours(case: _Case, ours: float, slow: float, critical: float) -> Row:
    source = "its published median" if case.published else "its scheduling"
    note = f"{ours / critical:.3f} x its critical path; target: JARVIS, {source}; reference: its scheduling, same run"
    return Row(f"makespan.{case.name}_s", round(ours, 3), "s", case.published or round(slow, 3), round(slow, 3), note)


def _polling(case: _Case, ours: float, slow: float) -> Row:
    off = f"; JARVIS itself {case.published} s, {100 * (slow / case.published - 1):+.1f} %" if case.published else ""
    note = f"JARVIS' scheduling alone, calculated {jarvis_seconds(case.script):.3f} s{off}; reference: ours"
    return Row(f"peers.jarvis_{case.name}_s", round(slow, 3), "s", reference=round(ours, 3), note=note)


async def _other(name: str, case: _Case, ours: float, critical: float, peers: Mapping[str, Peer]) -> Row:
    row = f"peers.{name}_{case.name}_s"
    if name not in peers:
        return _absent(row, "s", name)
    theirs = await peers[name].median(case.script, 1)
    note = f"{theirs / critical:.3f} x its critical path; {STORED[name]}; reference: ours"
    return Row(row, round(theirs, 3), "s", reference=round(ours, 3), note=note)


async def _cpu_time(testbed: Testbed, client: Client, peers: Mapping[str, Peer]) -> list[Row]:
    """CPU time of runs in which the scripted services have no delays."""
    request = planned_run(IDLE)
    ours = round(await _cpu_ms(testbed.orchestrator, lambda: client.run(request)), 2)
    note = f"of the orchestrator; a random graph of {len(IDLE.graph)}, models selected, services without delays"
    measured = [Row("makespan.cpu_ms_per_task", ours, "ms", note=note)]
    for name in PEERS:
        row = f"peers.{'jarvis' if name == POLLING else name}_cpu_ms_per_task"
        if name in peers:
            theirs = await _cpu_ms(peers[name].running, partial(peers[name].run, IDLE))
            note = f"{STORED[name]}; reference: ours, {MORE}"
            measured.append(Row(row, round(theirs, 2), "ms", reference=ours, note=note))
        else:
            measured.append(_absent(row, "ms", name))
    return measured


async def _cpu_ms(process: Running, run: Callable[[], Awaitable[object]]) -> float:
    """CPU milliseconds of a process per task."""
    await run()
    before = process.cpu_seconds()
    for _ in range(IDLE_RUNS):
        await run()
    return 1000 * (process.cpu_seconds() - before) / (IDLE_RUNS * len(IDLE.graph))


def _absent(row: str, unit: str, name: str) -> Row:
    return gap(row, unit, None, f"{PEERS[name]} is not installed: pip install -e '.[peers]'")


async def _median(client: Client, script: Script, repeats: int) -> float:
    request = planned_run(script)
    return median([await client.run(request) for _ in range(repeats)], digits=6)

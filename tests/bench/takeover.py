"""Interruption of a run when its orchestrator is killed, with the default lease, and when it is stopped."""

import time
from collections.abc import AsyncIterable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from protos.hugginggpt.internal.v1.orchestrator_pb2 import CreateRunRequest
from protos.hugginggpt.internal.v1.orchestrator_pb2_grpc import OrchestratorServiceStub
from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.gateway_pb2 import WatchRunRequest
from protos.hugginggpt.v1.run_pb2 import RUN_MODE_RESULTS, RUN_STATE_COMPLETED, RunSpec
from services.common.channel import connect
from tests.bench.load import TIMEOUT_SECONDS
from tests.bench.processes import Running, start_testbed
from tests.bench.rows import Row
from tests.bench.shapes import NAMED, Script

KILLED_SECONDS, STOPPED_SECONDS = 15, 2
SLOW = Script("chain", 3, expert=1.0)


async def rows() -> list[Row]:
    """One sample each, since a takeover takes about one lease in any case, and a release much less."""
    interrupted, ended = await _measure(Running.kill)
    note = f"kill -9 in a chain of {SLOW.size}, {NAMED}, one task done; the run ended after {ended:.1f} s"
    released, _ = await _measure(Running.terminate)
    return [
        Row("takeover.seconds", round(interrupted, 1), "s", KILLED_SECONDS, note=note),
        Row("takeover.stopped_s", round(released, 2), "s", STOPPED_SECONDS, note="likewise on SIGTERM"),
    ]


async def _measure(end: Callable[[Running], None]) -> tuple[float, float]:
    """Seconds from the end of the owner until another orchestrator has taken over, and until the run has ended."""
    with TemporaryDirectory() as home:
        async with start_testbed(Path(home), orchestrators=2) as testbed:
            owner, other = testbed.orchestrators
            async with connect(owner.address) as owner_channel, connect(other.address) as other_channel:
                request = CreateRunRequest(spec=RunSpec(plan=SLOW.plan_message(), mode=RUN_MODE_RESULTS))
                events = OrchestratorServiceStub(owner_channel).CreateRun(request, timeout=TIMEOUT_SECONDS)
                seen = await _until(events, "task_ended")
                end(owner)
                killed = time.perf_counter()
                rest = WatchRunRequest(run_id=seen.run_id, after_sequence=seen.sequence)
                watched = OrchestratorServiceStub(other_channel).WatchRun(rest, timeout=TIMEOUT_SECONDS)
                await _until(watched, "taken_over")
                interrupted = time.perf_counter() - killed
                run = (await _until(watched, "run_ended")).run_ended
                ended = time.perf_counter() - killed
    if run.state != RUN_STATE_COMPLETED:
        raise RuntimeError(f"the run failed after the takeover: {run.failure.message}")
    return interrupted, ended


async def _until(events: AsyncIterable[RunEvent], kind: str) -> RunEvent:
    async for event in events:
        if event.WhichOneof("event") == kind:
            return event
    raise RuntimeError(f"the stream ended before {kind}")

"""How long a run stands still when its orchestrator is killed, with the lease as it is shipped, or stopped."""

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
from tests.bench.load import PATIENCE_SECONDS
from tests.bench.processes import Running, staged
from tests.bench.rows import Row
from tests.bench.shapes import NAMED, Script

KILLED_SECONDS, STOPPED_SECONDS = 15, 2
SLOW = Script("chain", 3, expert=1.0)


async def rows() -> list[Row]:
    """One sample each: a takeover takes about a lease, whatever else happens, and a handover takes none of it."""
    stood_still, over = await _moved(Running.kill)
    note = f"kill -9 in a chain of {SLOW.size}, {NAMED}, one task done; the run was over after {over:.1f} s"
    handed, _ = await _moved(Running.terminate)
    return [
        Row("takeover.seconds", round(stood_still, 1), "s", KILLED_SECONDS, note=note),
        Row("takeover.stopped_s", round(handed, 2), "s", STOPPED_SECONDS, note="SIGTERM likewise: the run is released"),
    ]


async def _moved(end: Callable[[Running], None]) -> tuple[float, float]:
    """Seconds from the end of the owner until another orchestrator has its run, and until the run has ended."""
    with TemporaryDirectory() as home:
        async with staged(Path(home), orchestrators=2) as stage:
            owner, heir = stage.orchestrators
            async with connect(owner.address) as dying, connect(heir.address) as living:
                spec = RunSpec(plan=SLOW.supplied(), mode=RUN_MODE_RESULTS)
                asked = CreateRunRequest(spec=spec)
                begun = OrchestratorServiceStub(dying).CreateRun(asked, timeout=PATIENCE_SECONDS)
                seen = await _until(begun, "task_ended")
                end(owner)
                killed = time.perf_counter()
                rest = WatchRunRequest(run_id=seen.run_id, after_sequence=seen.sequence)
                watched = OrchestratorServiceStub(living).WatchRun(rest, timeout=PATIENCE_SECONDS)
                await _until(watched, "taken_over")
                stood_still = time.perf_counter() - killed
                ended = (await _until(watched, "run_ended")).run_ended
                over = time.perf_counter() - killed
    if ended.state != RUN_STATE_COMPLETED:
        raise RuntimeError(f"the run did not survive: {ended.failure.message}")
    return stood_still, over


async def _until(events: AsyncIterable[RunEvent], kind: str) -> RunEvent:
    async for event in events:
        if event.WhichOneof("event") == kind:
            return event
    raise RuntimeError(f"the stream ended before {kind}")

"""Operations on runs, carried out by the orchestrator; shared by all protocols."""

import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING
from weakref import WeakSet

from gateway.auth.audit import Audit
from gateway.core.run_stream import Call, Reopen, RunEventFeed
from gateway.core.service_calls import call
from gateway.limits.quotas import Quotas
from gateway.limits.throttle import Throttle
from protos.hugginggpt.internal.v1 import orchestrator_pb2
from protos.hugginggpt.run_state import ENDED_RUN_STATES
from protos.hugginggpt.v1 import gateway_pb2
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_LOCAL, DATA_POLICY_OPEN, Caller, DataPolicy
from protos.hugginggpt.v1.plan_pb2 import Plan
from protos.hugginggpt.v1.run_pb2 import (
    RUN_VIEW_BASIC,
    Run,
    RunSpec,
)
from services.common import call_context
from services.common.errors import InvalidRequest

if TYPE_CHECKING:
    from protos.hugginggpt.internal.v1.orchestrator_pb2_grpc import OrchestratorServiceAsyncStub

_RUN_ID = re.compile(r"run_[0-9a-f]{1,64}")

STREAM_SECONDS = 24 * 3600.0
"""Maximum lifetime of one gRPC stream; the feed then opens the next one."""


def valid_run_id(name: str) -> str:
    """Returns the text if it is a well-formed run id, else an empty string."""
    return name if _RUN_ID.fullmatch(name) else ""


class RunOperations:
    """Starts, watches, lists, cancels, approves and deletes runs.

    Every method raises the ServiceError the orchestrator raised, or Unavailable if it did not answer.
    """

    def __init__(self, stub: "OrchestratorServiceAsyncStub", quotas: Quotas, audit: Audit) -> None:
        self._stub = stub
        self._quotas = quotas
        self._audit = audit
        self._throttle = Throttle()
        self._feeds: WeakSet[RunEventFeed] = WeakSet()
        self._stopped = False

    async def start(self, spec: RunSpec) -> RunEventFeed:
        """Starts a run and returns its events from the first."""
        request, metadata = orchestrator_pb2.CreateRunRequest(spec=spec), call_context.metadata()
        with self._throttle.admit(call_context.current().tenant):
            return await self._start(request, metadata)

    async def _start(
        self, request: orchestrator_pb2.CreateRunRequest, metadata: Sequence[tuple[str, bytes]]
    ) -> RunEventFeed:
        async with self._quotas.reserve_run() as assign_run:
            feed = self._feed(
                RunEventFeed(self._stub.CreateRun(request, timeout=STREAM_SECONDS, metadata=metadata), self._reopen())
            )
            await feed.wait_accepted()
            await assign_run(feed.run_id)
        return feed

    async def watch(self, run_id: str, after: int) -> RunEventFeed:
        """Returns the events of an existing run after a sequence number."""
        run = await call(self._stub.GetRun, gateway_pb2.GetRunRequest(run_id=run_id, view=RUN_VIEW_BASIC))
        reopen = self._reopen()
        feed = self._feed(RunEventFeed(reopen(run_id, after), reopen, run_id, after))
        feed.ended = run.state in ENDED_RUN_STATES and after >= run.last_sequence
        return feed

    async def get(self, run_id: str) -> Run:
        return await call(self._stub.GetRun, gateway_pb2.GetRunRequest(run_id=run_id))

    async def policy(self, run_id: str, requested: "DataPolicy.ValueType") -> "DataPolicy.ValueType":
        """Data policy for data that continues a run: the requested one if the run's policy is open, else local."""
        feed = await self.watch(run_id, 0)
        try:
            await feed.wait_accepted()
            first = await feed.read()
        finally:
            feed.stop()
        is_open = first is not None and first.run_accepted.caller.policy == DATA_POLICY_OPEN
        return requested if is_open else DATA_POLICY_LOCAL

    async def continuation_caller(self, run_id: str) -> Caller:
        """Returns the current caller, restricted to the data policy of the run being continued, if there is one."""
        caller = Caller()
        caller.CopyFrom(call_context.current())
        if run_id:
            caller.policy = await self.policy(run_id, caller.policy)
        return caller

    async def list(self, request: gateway_pb2.ListRunsRequest) -> gateway_pb2.ListRunsResponse:
        if request.page_size < 0:
            raise InvalidRequest("page_size is negative", remedy="send 0 for the default size", port="page_size")
        return await call(self._stub.ListRuns, request)

    async def cancel(self, run_id: str) -> None:
        await call(self._stub.CancelRun, gateway_pb2.CancelRunRequest(run_id=run_id))

    async def approve(self, run_id: str, plan: Plan | None) -> None:
        await call(self._stub.ApproveRun, gateway_pb2.ApproveRunRequest(run_id=run_id, plan=plan))

    async def delete(self, run_id: str) -> None:
        """Deletes an ended run on behalf of the caller, and records it in the audit log."""
        await self._audit.record("run.delete", run_id)
        await self.discard(run_id)

    async def discard(self, run_id: str) -> None:
        """Deletes an ended run that was started without storage; not audited."""
        await call(self._stub.DeleteRun, gateway_pb2.DeleteRunRequest(run_id=run_id))

    async def hold(self, holder: str, sha256s: Collection[str]) -> None:
        """Protects artifacts from garbage collection, replacing the holder's earlier set."""
        await call(self._stub.HoldArtifacts, orchestrator_pb2.HoldArtifactsRequest(holder=holder, sha256s=sha256s))

    def stop(self) -> None:
        """Stops all current and future event streams, so that clients reconnect to another gateway."""
        self._stopped = True
        for feed in tuple(self._feeds):
            feed.stop()

    def _feed(self, feed: RunEventFeed) -> RunEventFeed:
        self._feeds.add(feed)
        if self._stopped:
            feed.stop()
        return feed

    def _reopen(self) -> Reopen:
        metadata = call_context.metadata()

        def watch(run_id: str, after: int) -> Call:
            request = gateway_pb2.WatchRunRequest(run_id=run_id, after_sequence=after)
            return self._stub.WatchRun(request, timeout=STREAM_SECONDS, metadata=metadata)

        return watch

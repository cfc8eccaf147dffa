"""Client of the selector: requests the candidates of a task, and caches those that depend only on the catalogue."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Self

import grpc

from protos.hugginggpt.internal.v1.selector_pb2 import Avoid, SelectedCandidate, SelectRequest, SelectResponse
from protos.hugginggpt.v1.caller_pb2 import PRIORITY_BATCH
from protos.hugginggpt.v1.event_pb2 import RunEvent, TaskSelected
from protos.hugginggpt.v1.model_pb2 import SELECTION_POLICY_RANK, Constraints, InferenceMode
from protos.hugginggpt.v1.plan_pb2 import CONTROLLER_RANK
from protos.hugginggpt.v1.task_pb2 import DETERMINISM_NONE, Task
from services.common import call_context
from services.common.change_signal import ChangeSignal
from services.common.errors import DeadlineExceeded, NotFound, from_rpc
from services.orchestrator.deadline import Deadline
from services.orchestrator.experts.catalogue_watcher import CatalogueWatcher
from services.orchestrator.runs.run_log import RunLog

if TYPE_CHECKING:  # this name exists for type checkers only
    from protos.hugginggpt.internal.v1.selector_pb2_grpc import SelectorServiceAsyncStub

AT_ONCE = 128
"""Concurrent calls of all runs to the selector: a gRPC server drops calls, as CANCELLED, once 1,000 wait."""

BATCH_AT_ONCE = 32
"""How many of these may be for batch items; the rest is for interactive runs."""

SHARE = 0.25
"""Share of the run's remaining time for one selection."""

CACHED_SECONDS = 10.0
"""Timeout of a selection for the cache, which is not bound to one run's deadline."""

LOOK_SECONDS = 5.0
"""Interval at which availability is checked again while the catalogue does not change."""

MAX_RESPONSES = 1_000
"""Number of cached responses; with more, all are dropped."""

SHARED_SECONDS = 1.0
"""How long items of batches share a selection: it has the loads of replicas, which change."""


class CandidateCache:
    """The selector's responses, dropped whenever the catalogue changes; the catalogue is watched from first use.

    Args:
        watcher: watches the catalogue for the whole process.
    """

    def __init__(self, watcher: CatalogueWatcher) -> None:
        self._watcher = watcher
        self._watching = ExitStack()
        self._changed: ChangeSignal | None = None
        self._version = 0
        self._responses: dict[tuple[Hashable, int], SelectResponse] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watching.close()

    async def get(self, key: Hashable, select: Callable[[], Awaitable[SelectResponse]]) -> SelectResponse:
        """A response that depends only on the catalogue and the data policy; calls `select` if it is not cached.

        Raises:
            ServiceError: there is no candidate, or the selector is unavailable.
        """
        key = (key, call_context.current().policy)
        version = self._current_version()
        if key not in self._responses:
            response = await select()
            if self._current_version() != version:
                return response
            if len(self._responses) >= MAX_RESPONSES:
                self._responses.clear()
            self._responses[key] = response
        return self._responses[key]

    async def wait_for_change(self, seconds: float) -> None:
        """Waits until the catalogue changes, or until the time has passed."""
        changed, version = self._watch_changes(), self._current_version()
        try:
            async with asyncio.timeout(seconds):
                await changed.wait(version)
        except TimeoutError:
            return

    def _watch_changes(self) -> ChangeSignal:
        """The signal of changes of the catalogue, watched from the first call on."""
        if self._changed is None:
            self._changed = self._watching.enter_context(self._watcher.watched())
            self._version = self._changed.version
        return self._changed

    def _current_version(self) -> int:
        """Version of the catalogue; when it has changed, the cached responses are dropped."""
        version = self._watch_changes().version
        if version != self._version:
            self._responses.clear()
            self._version = version
        return version


class SelectorClient:
    """Requests candidates from the selector.

    Args:
        selector: gRPC stub.
        avoid: returns open circuits, which the selector ranks last.
        cache: of responses that depend only on the catalogue.
    """

    def __init__(
        self, selector: "SelectorServiceAsyncStub", avoid: Callable[[], Sequence[Avoid]], cache: CandidateCache
    ) -> None:
        self._selector = selector
        self._avoid = avoid
        self._cache = cache
        self._shared: dict[Hashable, tuple[float, SelectResponse]] = {}
        """Selections for batch items, each with the time until which it is used."""
        self._batch_permits = asyncio.Semaphore(BATCH_AT_ONCE)
        self._interactive_permits = asyncio.Semaphore(AT_ONCE - BATCH_AT_ONCE)

    async def select(self, run: RunLog, task: Task, deadline: Deadline) -> SelectResponse:
        """Selects the candidates of a task, best first, and emits the selection as an event.

        Raises:
            ServiceError: there is no candidate, or the selector is unavailable.
        """
        spec = run.fold.run.spec
        if task.pinned_model:
            response = await self.select_cached(task, spec.inference_mode, spec.constraints)
        else:
            request = _request(run, task, selection_policy=spec.selection_policy)
            select = self._select_shared if run.is_batch_item else self._select
            response = await select(request, deadline)
        selected = TaskSelected(
            candidates=[selected.candidate for selected in response.candidates],
            decision=response.decision,
            determinism=response.spec.determinism or DETERMINISM_NONE,
        )
        run.emit(RunEvent(task_id=task.id, task_selected=selected))
        return response

    async def wait_for_change(self) -> None:
        """Waits until the catalogue changes, or for LOOK_SECONDS."""
        await self._cache.wait_for_change(LOOK_SECONDS)

    async def select_cached(
        self, task: Task, mode: "InferenceMode.ValueType", constraints: Constraints | None
    ) -> SelectResponse:
        """Candidates of a kind of task, or its pinned model, cached until the catalogue changes.

        Open circuits are not considered here; they matter when the call is made.

        Raises:
            ServiceError: there is no candidate, or the selector is unavailable.
        """
        limits = constraints.SerializeToString(deterministic=True) if constraints else b""
        key = (task.task, task.pinned_model, task.pinned_revision, mode, limits)

        def select() -> Awaitable[SelectResponse]:
            bare = Task(task=task.task, pinned_model=task.pinned_model, pinned_revision=task.pinned_revision)
            request = SelectRequest(
                task=bare, inference_mode=mode, constraints=constraints, selection_policy=SELECTION_POLICY_RANK
            )
            return self._call(request, CACHED_SECONDS)

        return await self._cache.get(key, select)

    async def reselect(self, run: RunLog, task: Task, deadline: Deadline) -> Sequence[SelectedCandidate]:
        """Selects the candidates of a task again, by rank only, for their current addresses.

        Raises:
            ServiceError: there is no candidate any more, or the selector is unavailable.
        """
        request = _request(run, task, selection_policy=SELECTION_POLICY_RANK)
        return (await self._select(request, deadline)).candidates

    async def _select_shared(self, request: SelectRequest, deadline: Deadline) -> SelectResponse:
        """A selection for a batch item, shared with equal ones unless it depends on the run or on open circuits."""
        caller = call_context.current()
        key = (caller.tenant, caller.policy, request.SerializeToString(deterministic=True))
        expires, response = self._shared.get(key, (0.0, None))
        if response and time.monotonic() < expires and not self._avoid():
            return response
        response = await self._select(request, deadline)
        if response.decision.controller == CONTROLLER_RANK and not request.avoid:
            if len(self._shared) >= MAX_RESPONSES:
                self._shared.clear()
            self._shared[key] = (time.monotonic() + SHARED_SECONDS, _without_usage(response))
        return response

    async def _select(self, request: SelectRequest, deadline: Deadline) -> SelectResponse:
        request.avoid.extend(self._avoid())
        return await self._call(request, max(SHARE * deadline.left, 1.0))

    async def _call(self, request: SelectRequest, seconds: float) -> SelectResponse:
        deadline = Deadline(seconds)
        async with self._permit(request.task.task, seconds):
            try:
                response: SelectResponse = await self._selector.Select(
                    request, timeout=max(deadline.left, 0.0), metadata=call_context.metadata()
                )
            except grpc.aio.AioRpcError as error:
                raise from_rpc(error) from error
        if not response.candidates:
            task = request.task.task
            raise NotFound(f"no candidate for {task}", reason="MODEL", remedy="see `hugginggpt models`")
        return response

    @asynccontextmanager
    async def _permit(self, task: str, seconds: float) -> AsyncIterator[None]:
        """Holds one of the permits for calls to the selector within the block.

        Raises:
            DeadlineExceeded: no permit was free for `seconds`.
        """
        is_batch = call_context.current().priority == PRIORITY_BATCH
        permits = self._batch_permits if is_batch else self._interactive_permits
        try:
            async with asyncio.timeout(seconds if permits.locked() else None):
                await permits.acquire()
        except TimeoutError:
            limit = BATCH_AT_ONCE if is_batch else AT_ONCE - BATCH_AT_ONCE
            message = f"no model was selected for {task}: {limit} calls to the selector were active for {seconds:.3g} s"
            remedy = "try again; if the error persists, run another selector or fewer concurrent runs"
            raise DeadlineExceeded(message, remedy=remedy) from None
        try:
            yield
        finally:
            permits.release()


def _without_usage(response: SelectResponse) -> SelectResponse:
    """The selection without what it used, which counts once."""
    copy = SelectResponse()
    copy.CopyFrom(response)
    copy.decision.ClearField("usage")
    return copy


def _request(run: RunLog, task: Task, **policy: int) -> SelectRequest:
    spec = run.fold.run.spec
    return SelectRequest(
        task=task,
        request=spec.request,
        inference_mode=spec.inference_mode,
        constraints=spec.constraints,
        **policy,  # type: ignore[arg-type]  # an enum's value
    )

"""Asking the selector who can do a task."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import grpc

from protos.hugginggpt.internal.v1.selector_pb2 import Avoid, SelectRequest, SelectResponse
from protos.hugginggpt.v1.caller_pb2 import PRIORITY_BATCH
from protos.hugginggpt.v1.event_pb2 import RunEvent, TaskSelected
from protos.hugginggpt.v1.model_pb2 import SELECTION_POLICY_RANK, Candidate, Constraints, InferenceMode
from protos.hugginggpt.v1.task_pb2 import DETERMINISM_NONE, Task
from services.common import call_context
from services.common.errors import DeadlineExceeded, NotFound, from_rpc
from services.orchestrator.deadline import Deadline
from services.orchestrator.runs.candidate_cache import LOOK_SECONDS, Catalogue
from services.orchestrator.runs.run_log import LiveRun

if TYPE_CHECKING:  # this name exists for type checkers only
    from protos.hugginggpt.internal.v1.selector_pb2_grpc import SelectorServiceAsyncStub

AT_ONCE = 128
"""Calls to the selector under way at once, of all runs: a gRPC server drops calls, as CANCELLED, once 1,000 wait."""

BACKGROUND_AT_ONCE = 32
"""Of these, how many are for items of batches: no person's choice stands behind theirs."""

SHARE = 0.25
"""Of the time a run has left, what one choice may take."""

STANDING_SECONDS = 10.0
"""What a choice may take that is not for one run."""


class Selections:
    """The selector's choices.

    Args:
        selector: who chooses.
        avoid: what has been failing.
        catalogue: what is known of choices that the catalogue alone decides.
    """

    def __init__(
        self, selector: "SelectorServiceAsyncStub", avoid: Callable[[], Sequence[Avoid]], catalogue: Catalogue
    ) -> None:
        self._selector = selector
        self._avoid = avoid
        self._catalogue = catalogue
        self._background = asyncio.Semaphore(BACKGROUND_AT_ONCE)
        self._people = asyncio.Semaphore(AT_ONCE - BACKGROUND_AT_ONCE)

    async def choose(self, run: LiveRun, task: Task, deadline: Deadline) -> SelectResponse:
        """The models for a task, best first; the run is told.

        Raises:
            ServiceError: nobody can do it, or the selector does not answer.
        """
        spec = run.view.run.spec
        if task.pinned_model:
            chosen = await self.standing(task, spec.inference_mode, spec.constraints)
        else:
            chosen = await self._asked(_request(run, task, selection_policy=spec.selection_policy), deadline)
        selected = TaskSelected(
            candidates=chosen.candidates,
            decision=chosen.decision,
            determinism=chosen.spec.determinism or DETERMINISM_NONE,
        )
        run.emit(RunEvent(task_id=task.id, task_selected=selected))
        return chosen

    async def change(self) -> None:
        """Waits until the catalogue may offer something else."""
        await self._catalogue.change(LOOK_SECONDS)

    async def standing(
        self, task: Task, mode: "InferenceMode.ValueType", constraints: Constraints | None
    ) -> SelectResponse:
        """Who can do a kind of task, or its pinned model, for as long as the catalogue stays as it is.

        What has been failing counts only where the call is made.

        Raises:
            ServiceError: nobody can do it, or the selector does not answer.
        """
        limits = constraints.SerializeToString(deterministic=True) if constraints else b""
        question = (task.task, task.pinned_model, task.pinned_revision, mode, limits)

        def ask() -> Awaitable[SelectResponse]:
            bare = Task(task=task.task, pinned_model=task.pinned_model, pinned_revision=task.pinned_revision)
            request = SelectRequest(
                task=bare, inference_mode=mode, constraints=constraints, selection_policy=SELECTION_POLICY_RANK
            )
            return self._chosen(request, STANDING_SECONDS)

        return await self._catalogue.offered(question, ask)

    async def again(self, run: LiveRun, task: Task, deadline: Deadline) -> Sequence[Candidate]:
        """Where the models for a task are by now; costs no LLM.

        Raises:
            ServiceError: nobody can do it any more, or the selector does not answer.
        """
        request = _request(run, task, selection_policy=SELECTION_POLICY_RANK)
        return (await self._asked(request, deadline)).candidates

    async def _asked(self, request: SelectRequest, deadline: Deadline) -> SelectResponse:
        request.avoid.extend(self._avoid())
        return await self._chosen(request, max(SHARE * deadline.left, 1.0))

    async def _chosen(self, request: SelectRequest, seconds: float) -> SelectResponse:
        deadline = Deadline(seconds)
        async with self._permit(request.task.task, seconds):
            try:
                chosen: SelectResponse = await self._selector.Select(
                    request, timeout=max(deadline.left, 0.0), metadata=call_context.metadata()
                )
            except grpc.aio.AioRpcError as error:
                raise from_rpc(error) from error
        if not chosen.candidates:
            task = request.task.task
            raise NotFound(f"nobody was chosen for {task}", reason="MODEL", remedy="see `hugginggpt models`")
        return chosen

    @asynccontextmanager
    async def _permit(self, task: str, seconds: float) -> AsyncIterator[None]:
        """One of the calls to the selector that may be active at once, held within the block.

        Raises:
            DeadlineExceeded: all of them are taken for so many seconds.
        """
        is_batch = call_context.current().priority == PRIORITY_BATCH
        permits = self._background if is_batch else self._people
        try:
            async with asyncio.timeout(seconds if permits.locked() else None):
                await permits.acquire()
        except TimeoutError:
            limit = BACKGROUND_AT_ONCE if is_batch else AT_ONCE - BACKGROUND_AT_ONCE
            what = f"no model was selected for {task}: {limit} calls to the selector were active for {seconds:.3g} s"
            remedy = "try again; if it lasts, run another selector or fewer runs at once"
            raise DeadlineExceeded(what, remedy=remedy) from None
        try:
            yield
        finally:
            permits.release()


def _request(run: LiveRun, task: Task, **policy: int) -> SelectRequest:
    spec = run.view.run.spec
    return SelectRequest(
        task=task,
        request=spec.request,
        inference_mode=spec.inference_mode,
        constraints=spec.constraints,
        **policy,  # type: ignore[arg-type]  # an enum's value
    )

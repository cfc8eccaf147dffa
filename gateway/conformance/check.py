"""Conformance checks of an expert: calls it as the orchestrator does and reports what it does wrong."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc

from gateway.conformance import calls, description
from gateway.conformance.findings import Finding, Level, not_tried, wrong
from gateway.conformance.target import TENANT, Target, failure_text, is_broken_connection
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_LOCAL, DATA_POLICY_OPEN, PRIORITY_INTERACTIVE, Caller
from protos.hugginggpt.v1.expert_pb2 import DescribeResponse
from protos.hugginggpt.v1.model_pb2 import MODEL_LOCATION_EXTERNAL, MODEL_STATE_READY, ModelCard
from protos.hugginggpt.v1.task_pb2 import TaskSpec
from services.common.artifacts import ArtifactStore
from services.common.channel import dial
from services.common.errors import Unavailable, Unimplemented, from_rpc
from services.common.settings import StoreSettings, from_environment

CONNECT_SECONDS = 10.0

OnCheck = Callable[[str], None]

CompletedTask = tuple[float, TaskSpec, ModelCard]
"""A task that succeeded, after the seconds that it took."""


@dataclass(frozen=True)
class CheckRequest:
    """Which expert to check, and how."""

    address: str
    every_model: bool = False
    """Check all models of a task instead of one."""
    allow_external: bool = False
    """Also call external models, which send the samples to other hosts."""
    seconds: float = 20.0
    """Limit of a call whose model is loaded."""
    load_seconds: float = 300.0
    """Limit of loading a model."""
    process: int | None = None
    """Process id of the expert; it gets SIGTERM to check that it finishes active calls."""


class Report:
    """Findings so far, and the name of the active check.

    Args:
        on_check: called with the name of each check when it starts.
    """

    def __init__(self, on_check: OnCheck) -> None:
        self.findings: list[Finding] = []
        self.any_task = False
        """Whether at least one task succeeded."""
        self.check = ""
        self._on_check = on_check

    @property
    def is_ok(self) -> bool:
        """Whether no check failed and at least one task succeeded."""
        return self.any_task and all(finding.level is not Level.WRONG for finding in self.findings)

    def begin(self, check: str) -> None:
        """Names the check that starts now."""
        self.check = check
        self._on_check(check)


async def check(request: CheckRequest, on_check: OnCheck) -> Report:
    """Runs all checks.

    Args:
        request: which expert to check, and how.
        on_check: called with the name of each check when it starts.

    Raises:
        ServiceError: nothing listens at the address, or the server there is not an expert.
    """
    report = Report(on_check)
    report.begin(f"connecting to {request.address}")
    try:
        async with _connected(request) as target:
            try:
                async for finding in _all_checks(target, request, report):
                    report.findings.append(finding)
            except grpc.aio.AioRpcError as error:
                if not report.findings:
                    raise
                report.findings += [
                    await _failed_check(target, report.check, error),
                    _remaining("an earlier check failed"),
                ]
    except grpc.aio.AioRpcError as error:
        failure = from_rpc(error)
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            message = f"the server at {request.address} is not an expert: it does not implement {description.SERVICE}"
            raise Unimplemented(
                message, remedy="give an expert's address; see protos/hugginggpt/v1/expert.proto"
            ) from error
        text = failure_text(failure, request.seconds)
        raise Unavailable(f"{request.address}: {text}", remedy=failure.remedy or "read the expert's log") from error
    return report


async def _failed_check(target: Target, check: str, error: grpc.aio.AioRpcError) -> Finding:
    failure = from_rpc(error)
    if is_broken_connection(failure):
        return await calls.broken_connection(target, check)
    return wrong(check, failure_text(failure, target.seconds), failure.remedy or "read the expert's log")


def _remaining(reason: str) -> Finding:
    return not_tried("remaining checks", f"{reason}, so no further check was run", "fix the failures above first")


@asynccontextmanager
async def _connected(request: CheckRequest) -> AsyncIterator[Target]:
    policy = DATA_POLICY_OPEN if request.allow_external else DATA_POLICY_LOCAL
    caller = Caller(tenant=TENANT, policy=policy, priority=PRIORITY_INTERACTIVE)
    store = ArtifactStore.open(from_environment(StoreSettings).artifacts_url)
    async with dial(request.address) as channel:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await channel.channel_ready()
        except TimeoutError:
            remedy = "start the expert, for example: python -m experts.host FOLDER"
            raise Unavailable(f"cannot connect to {request.address}", remedy=remedy) from None
        yield Target(channel, store, caller, request.seconds, request.load_seconds)


async def _all_checks(target: Target, request: CheckRequest, report: Report) -> AsyncIterator[Finding]:
    report.begin("description")
    described = await target.describe()
    async for finding in _description_checks(target, described, report):
        yield finding
    callable_tasks = [spec for spec in described.tasks if not description.flaw_of(spec)]
    report.begin("policy")
    async for finding in calls.policy(target, _external_models(callable_tasks, described)):
        yield finding
    models = _models_to_call(callable_tasks, described, request)
    if left := sorted({spec.name for spec in callable_tasks} - {spec.name for spec, _ in models}):
        yield not_tried("external tasks", f"not called: {', '.join(left)}", "--policy open sends samples to them")
    completed: list[CompletedTask] = []
    async for finding in _task_checks(target, models, report, completed):
        yield finding
    if not completed:
        yield _remaining("no task succeeded")
        return
    fastest = min(completed, key=lambda each: each[0])
    async for finding in _behaviour_checks(target, fastest, request, report):
        yield finding


async def _description_checks(target: Target, described: DescribeResponse, report: Report) -> AsyncIterator[Finding]:
    for finding in description.description(described):
        yield finding
    report.begin("change counter")
    yield await description.change_counter(target, described)
    report.begin("health")
    async for finding in description.health(target, described):
        yield finding
    report.begin("reflection")
    yield await description.reflection(target)


async def _task_checks(
    target: Target, models: Sequence[tuple[TaskSpec, ModelCard]], report: Report, completed: list[CompletedTask]
) -> AsyncIterator[Finding]:
    """Runs each task with samples until the expert's process is gone; appends what succeeded to `completed`."""
    for index, (spec, card) in enumerate(models):
        report.begin(f"{spec.name} ({card.id})")
        finding, outcome = await calls.answer(target, spec, card)
        yield finding
        if finding.level is Level.OK:
            report.any_task = True
            completed.append((outcome.seconds, spec, card))
        elif outcome.error and is_broken_connection(outcome.error) and not await target.is_reachable():
            for later, other in models[index + 1 :]:
                yield not_tried(f"{later.name} ({other.id})", "the expert is no longer reachable")
            completed.clear()
            return


async def _behaviour_checks(
    target: Target, task: CompletedTask, request: CheckRequest, report: Report
) -> AsyncIterator[Finding]:
    """Runs the checks that need only one task."""
    seconds, spec, card = task
    report.begin("invalid calls")
    async for finding in calls.refusals(target, spec, card):
        yield finding
    call = await target.request(spec, card)
    report.begin("batch")
    yield await calls.batch(target, call)
    report.begin("progress")
    yield await calls.progress_stream(target)
    report.begin("deadline")
    yield await calls.deadlines(target, call)
    report.begin("cancel")
    yield await calls.cancellation(target, call, seconds)
    report.begin("overload")
    yield await calls.overload(target, call)
    if request.process is None:
        yield not_tried("drain", "needs --pid PROCESS: sends SIGTERM and checks that active calls finish")
    else:
        report.begin("drain")
        yield await calls.drain(target, call, request.process)


def _external_models(specs: Sequence[TaskSpec], described: DescribeResponse) -> list[tuple[TaskSpec, ModelCard]]:
    """The first external model of each task."""
    first = {card.task: card for card in reversed(described.models) if card.location == MODEL_LOCATION_EXTERNAL}
    return [(spec, first[spec.name]) for spec in specs if spec.name in first]


def _models_to_call(
    specs: Sequence[TaskSpec], described: DescribeResponse, request: CheckRequest
) -> list[tuple[TaskSpec, ModelCard]]:
    """The first model of each task, a ready one if there is any; all models with every_model."""
    chosen = []
    for spec in specs:
        cards = [card for card in described.models if card.task == spec.name]
        cards = [card for card in cards if request.allow_external or card.location != MODEL_LOCATION_EXTERNAL]
        cards.sort(key=lambda card: card.state != MODEL_STATE_READY)
        chosen += [(spec, card) for card in (cards if request.every_model else cards[:1])]
    return chosen

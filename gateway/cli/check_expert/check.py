"""hugginggpt check-expert: calls an expert as the house would, and tells what holds."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass

import grpc
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.cli import terminal
from gateway.cli.check_expert import checks, description, endurance
from gateway.cli.check_expert.error_text import failure_text, is_broken_connection
from gateway.cli.check_expert.findings import not_tried, wrong
from gateway.cli.check_expert.progress import Progress
from gateway.cli.check_expert.target import TENANT, Target
from gateway.cli.doctor_finding import Finding, Level
from gateway.cli.errors import NobodyThere, Problem
from gateway.cli.live_view import printable
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_LOCAL, DATA_POLICY_OPEN, PRIORITY_INTERACTIVE, Caller
from protos.hugginggpt.v1.expert_pb2 import DescribeResponse
from protos.hugginggpt.v1.model_pb2 import MODEL_LOCATION_EXTERNAL, MODEL_STATE_READY, ModelCard
from protos.hugginggpt.v1.task_pb2 import TaskSpec
from services.common.artifacts import ArtifactStore
from services.common.channel import dial
from services.common.errors import ServiceError, from_rpc
from services.common.settings import StoreSettings, from_environment

CONNECT_SECONDS = 10.0

_STYLES = {Level.OK: "green", Level.WARNING: "yellow", Level.WRONG: "red", Level.NOT_TRIED: "dim"}
_WORDS = {Level.OK: "holds", Level.WARNING: "mostly", Level.WRONG: "broken", Level.NOT_TRIED: "not tried"}


Answered = tuple[float, TaskSpec, ModelCard]
"""A task that was done, after the seconds that it took."""


@dataclass(frozen=True)
class Wanted:
    """What is to be checked."""

    address: str
    every_model: bool
    is_open: bool
    """External models are asked too."""
    seconds: float
    """How long a call may take once its model is loaded."""
    load_seconds: float
    """How long a model may take to load."""
    process: int | None
    """Ended to see whether calls under way are finished."""


def check(wanted: Wanted, *, as_json: bool) -> bool:
    """Prints what every check found.

    Returns:
        Whether nothing is broken and at least one task could be tried.
    """
    report = Report(Progress(terminal.err()))
    asyncio.run(_examine(wanted, report))
    findings = report.findings
    well = report.any_task and all(finding.level is not Level.WRONG for finding in findings)
    if as_json:
        terminal.tell_json({"ok": well, "checks": [asdict(finding) for finding in findings]})
    else:
        console = Console(highlight=False)
        console.print(_table(findings))
        console.print(_summary(findings))
    return well


class Report:
    """What was found, and the check that is under way.

    Args:
        progress: shown while a check is waited for.
    """

    def __init__(self, progress: Progress) -> None:
        self.findings: list[Finding] = []
        self.any_task = False
        """Whether a task was done."""
        self.check = ""
        self.progress = progress

    def begin(self, check: str) -> None:
        """The next check starts."""
        self.check = check
        self.progress.begin(check)


async def _examine(wanted: Wanted, report: Report) -> None:
    report.begin(f"connecting to {wanted.address}")
    try:
        async with report.progress.running(), _reached(wanted) as target:
            try:
                async for finding in _all(target, wanted, report):
                    report.findings.append(finding)
            except grpc.aio.AioRpcError as error:
                if not report.findings:
                    raise
                report.findings += [await _unfinished(target, report.check, error), _rest("the expert failed before")]
    except grpc.aio.AioRpcError as error:
        failure = from_rpc(error)
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            what = f"what answers at {wanted.address} is no expert: it has no {description.SERVICE}"
            raise Problem(what, remedy="name the address of an expert; protos/ has the service") from error
        text = failure_text(failure, wanted.seconds)
        raise Problem(f"{wanted.address}: {text}", remedy=failure.remedy or "look at its log") from error
    except ServiceError as error:
        raise Problem(error.message, remedy=error.remedy) from error


async def _unfinished(target: Target, check: str, error: grpc.aio.AioRpcError) -> Finding:
    """A check that a call's failure ended."""
    failure = from_rpc(error)
    if is_broken_connection(failure):
        return await checks.broken_connection(target, check)
    return wrong(check, failure_text(failure, target.seconds), failure.remedy or "look at its log")


def _rest(why: str) -> Finding:
    return not_tried("the rest", f"{why}, so nothing else was tried", "see above")


@asynccontextmanager
async def _reached(wanted: Wanted) -> AsyncIterator[Target]:
    policy = DATA_POLICY_OPEN if wanted.is_open else DATA_POLICY_LOCAL
    who = Caller(tenant=TENANT, policy=policy, priority=PRIORITY_INTERACTIVE)
    store = ArtifactStore.open(from_environment(StoreSettings).artifacts_url)
    async with dial(wanted.address) as channel:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await channel.channel_ready()
        except TimeoutError:
            remedy = "start it, for example with: python -m experts.host FOLDER"
            raise NobodyThere(f"nobody answers at {wanted.address}", remedy=remedy) from None
        yield Target(channel, store, who, wanted.seconds, wanted.load_seconds)


async def _all(target: Target, wanted: Wanted, report: Report) -> AsyncIterator[Finding]:
    report.begin("description")
    described = await target.describe()
    async for finding in _stated(target, described, report):
        yield finding
    sound = [spec for spec in described.tasks if not description.flaw_of(spec)]
    report.begin("policy")
    async for finding in checks.policy(target, _first_outside(sound, described)):
        yield finding
    to_ask = _to_ask(sound, described, wanted)
    if left := sorted({spec.name for spec in sound} - {spec.name for spec, _ in to_ask}):
        yield not_tried("tasks outside", f"not asked: {', '.join(left)}", "--policy open sends samples there")
    answered: list[Answered] = []
    async for finding in _answers(target, to_ask, report, answered):
        yield finding
    if not answered:
        yield _rest("no task could be done")
        return
    quickest = min(answered, key=lambda each: each[0])
    async for finding in _with(target, quickest, wanted, report):
        yield finding


async def _stated(target: Target, described: DescribeResponse, report: Report) -> AsyncIterator[Finding]:
    """What it states of itself."""
    for finding in description.description(described):
        yield finding
    report.begin("change counter")
    yield await description.change_counter(target, described)
    report.begin("health")
    async for finding in description.health(target, described):
        yield finding
    report.begin("reflection")
    yield await description.reflection(target)


async def _answers(
    target: Target, to_ask: list[tuple[TaskSpec, ModelCard]], report: Report, answered: list[Answered]
) -> AsyncIterator[Finding]:
    """Each task, done with samples, as long as the expert is there."""
    for place, (spec, card) in enumerate(to_ask):
        report.begin(f"{spec.name} ({card.id})")
        finding, outcome = await checks.answer(target, spec, card)
        yield finding
        if finding.level is Level.OK:
            report.any_task = True
            answered.append((outcome.seconds, spec, card))
        elif outcome.error and is_broken_connection(outcome.error) and not await target.is_there():
            for later, other in to_ask[place + 1 :]:
                yield not_tried(f"{later.name} ({other.id})", "the expert no longer answers")
            answered.clear()
            return


async def _with(target: Target, answered: Answered, wanted: Wanted, report: Report) -> AsyncIterator[Finding]:
    """What can be tried with any task; the quickest is taken."""
    seconds, spec, card = answered
    report.begin("wrong calls")
    async for finding in checks.refusals(target, spec, card):
        yield finding
    request = await target.request(spec, card)
    report.begin("progress")
    yield await endurance.following(target)
    report.begin("deadline")
    yield await endurance.deadlines(target, request)
    report.begin("cancel")
    yield await endurance.cancelling(target, request, seconds)
    report.begin("overload")
    yield await endurance.crowd(target, request)
    if wanted.process is None:
        yield not_tried("drain", "--pid PROCESS ends it to see that calls under way are finished")
    else:
        report.begin("drain")
        yield await endurance.drain(target, request, wanted.process)


def _first_outside(specs: list[TaskSpec], described: DescribeResponse) -> list[tuple[TaskSpec, ModelCard]]:
    """For each task the first model outside the house."""
    first = {card.task: card for card in reversed(described.models) if card.location == MODEL_LOCATION_EXTERNAL}
    return [(spec, first[spec.name]) for spec in specs if spec.name in first]


def _to_ask(specs: list[TaskSpec], described: DescribeResponse, wanted: Wanted) -> list[tuple[TaskSpec, ModelCard]]:
    """For each task the first model that is ready, else the first; with every_model all of them."""
    chosen = []
    for spec in specs:
        cards = [card for card in described.models if card.task == spec.name]
        cards = [card for card in cards if wanted.is_open or card.location != MODEL_LOCATION_EXTERNAL]
        cards.sort(key=lambda card: card.state != MODEL_STATE_READY)
        chosen += [(spec, card) for card in (cards if wanted.every_model else cards[:1])]
    return chosen


def _table(findings: list[Finding]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("", "promise", "found", "what is expected"):
        table.add_column(column, overflow="fold")
    for finding in findings:
        mark = Text(_WORDS[finding.level], style=_STYLES[finding.level])
        table.add_row(mark, *(Text(printable(cell)) for cell in (finding.check, finding.found, finding.remedy)))
    return table


def _summary(findings: list[Finding]) -> Text:
    counts = Counter(finding.level for finding in findings)
    told = ", ".join(f"{word} {counts[level]}" for level, word in _WORDS.items())
    return Text(f"\n{told}. protos/hugginggpt/v1/expert.proto has each promise in full.", style="dim")

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
from gateway.cli.finding import Finding, Level
from gateway.cli.problem import NobodyThere, Problem
from gateway.cli.promises import checks, describing, endurance
from gateway.cli.promises.findings import warning
from gateway.cli.promises.target import TENANT, Target
from gateway.cli.view import printable
from protos.hugginggpt.v1.expert_pb2 import DescribeResponse
from protos.hugginggpt.v1.types_pb2 import (
    DATA_POLICY_LOCAL,
    DATA_POLICY_OPEN,
    MODEL_STATE_READY,
    PRIORITY_INTERACTIVE,
    REACH_EXTERNAL,
    Caller,
    ModelCard,
    TaskSpec,
)
from services.runtime.artifacts import ArtifactStore
from services.runtime.channel import dial
from services.runtime.errors import ServiceError, from_rpc
from services.runtime.settings import StoreSettings, from_environment

CONNECT_SECONDS = 10.0

_STYLES = {Level.OK: "green", Level.WARNING: "yellow", Level.WRONG: "red"}
_WORDS = {Level.OK: "holds", Level.WARNING: "mostly", Level.WRONG: "broken"}


@dataclass(frozen=True)
class Wanted:
    """What is to be checked."""

    address: str
    every_model: bool
    is_open: bool
    """External models are asked too."""
    seconds: float
    """How long a call may take."""
    process: int | None
    """Ended to see whether calls under way are finished."""


def check(wanted: Wanted, *, as_json: bool) -> bool:
    """Prints what every check found; says whether all holds."""
    with terminal.err().status(f"asking {wanted.address}"):
        findings = asyncio.run(_found(wanted))
    well = all(finding.level is not Level.WRONG for finding in findings)
    if as_json:
        terminal.tell_json({"ok": well, "checks": [asdict(finding) for finding in findings]})
    else:
        console = Console(highlight=False)
        console.print(_table(findings))
        console.print(_summary(findings))
    return well


async def _found(wanted: Wanted) -> list[Finding]:
    try:
        async with _reached(wanted) as target:
            return [finding async for finding in _all(target, wanted)]
    except grpc.aio.AioRpcError as error:
        failure = from_rpc(error)
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            what = f"what answers at {wanted.address} is no expert: it has no {describing.SERVICE}"
            raise Problem(what, remedy="name the address of an expert; protos/ has the service") from error
        raise Problem(f"{wanted.address}: {failure.message}", remedy=failure.remedy or "look at its log") from error
    except ServiceError as error:
        raise Problem(error.message, remedy=error.remedy) from error


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
        yield Target(channel, store, who, wanted.seconds)


async def _all(target: Target, wanted: Wanted) -> AsyncIterator[Finding]:
    described = await target.describe()
    for finding in describing.description(described):
        yield finding
    yield await describing.change_counter(target, described)
    async for finding in describing.health(target, described):
        yield finding
    yield await describing.reflection(target)
    sound = [spec for spec in described.tasks if not describing.flaw_of(spec)]
    async for finding in checks.policy(target, _first_outside(sound, described)):
        yield finding
    answered: list[tuple[float, TaskSpec, ModelCard]] = []
    to_ask = _to_ask(sound, described, wanted)
    if left := sorted({spec.name for spec in sound} - {spec.name for spec, _ in to_ask}):
        yield warning("tasks outside", f"not asked: {', '.join(left)}", "--policy open sends samples there")
    for spec, card in to_ask:
        finding, outcome = await checks.answer(target, spec, card)
        yield finding
        if finding.level is Level.OK:
            answered.append((outcome.seconds, spec, card))
    if not answered:
        level = Level.WRONG if to_ask else Level.WARNING
        yield Finding("the rest", level, "no task could be done, so nothing else was tried", "see above")
        return
    quickest = min(answered, key=lambda each: each[0])
    async for finding in _with(target, *quickest, wanted):
        yield finding


async def _with(
    target: Target, seconds: float, spec: TaskSpec, card: ModelCard, wanted: Wanted
) -> AsyncIterator[Finding]:
    """What can be tried with any task; the quickest is taken."""
    async for finding in checks.refusals(target, spec, card):
        yield finding
    request = await target.request(spec, card)
    yield await endurance.following(target)
    yield await endurance.deadlines(target, request)
    yield await endurance.cancelling(target, request, seconds)
    yield await endurance.crowd(target, request)
    if wanted.process is None:
        yield Finding("drain", Level.OK, "not tried; --pid PROCESS ends it to see that calls under way are finished")
    else:
        yield await endurance.drain(target, request, wanted.process)


def _first_outside(specs: list[TaskSpec], described: DescribeResponse) -> list[tuple[TaskSpec, ModelCard]]:
    """For each task the first model outside the house."""
    first = {card.task: card for card in reversed(described.models) if card.reach == REACH_EXTERNAL}
    return [(spec, first[spec.name]) for spec in specs if spec.name in first]


def _to_ask(specs: list[TaskSpec], described: DescribeResponse, wanted: Wanted) -> list[tuple[TaskSpec, ModelCard]]:
    """For each task the first model that is ready, else the first; with every_model all of them."""
    chosen = []
    for spec in specs:
        cards = [card for card in described.models if card.task == spec.name]
        cards = [card for card in cards if wanted.is_open or card.reach != REACH_EXTERNAL]
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

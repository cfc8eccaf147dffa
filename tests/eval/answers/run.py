"""Sends the cases to a local stack and collects their answers."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from gateway.client import AsyncHuggingGPT, InvalidRequest, Run
from tests.eval.answers.cases import Case, Request
from tests.eval.answers.checks import Answer, Output
from tests.eval.answers.files import make
from tests.eval.answers.judge import Judgement, Verdict, judge
from tests.eval.planners import gather_limited
from tests.system.conftest import start_local_stack

EXPERT = "lite"

RUN_SECONDS = 120.0
"""Wall-time budget of a request."""

REFUSED = "refused"
"""State of a request that the gateway or the client refuses."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Answer and judgement of a case."""

    case: Case
    judgement: Judgement
    state: str
    answer: str
    tasks: tuple[str, ...]
    """Names of the planned tasks."""
    seconds: float

    @property
    def verdict(self) -> Verdict:
        return self.judgement.verdict

    def record(self) -> dict[str, Any]:
        """All about the case as JSON."""
        return {
            **asdict(self.case),
            "verdict": self.verdict,
            "failures": self.judgement.failures,
            "state": self.state,
            "tasks": self.tasks,
            "seconds": round(self.seconds, 2),
            "answer": self.answer,
        }


@contextmanager
def local_stack() -> Iterator[str]:
    """Starts a local stack with the lite expert and without an LLM; yields its URL when its tasks are offered."""
    with tempfile.TemporaryDirectory() as folder, start_local_stack(Path(folder), "--experts", EXPERT) as stack:
        stack.wait_for_experts(EXPERT)
        yield stack.url


async def outcomes(cases: Sequence[Case], url: str, *, concurrency: int, quiet: bool = True) -> list[Outcome]:
    """Outcomes of all cases in order.

    Args:
        cases: of one set or of both.
        url: of the gateway.
        concurrency: number of cases that run at the same time.
        quiet: whether the progress bar is hidden.
    """
    with tempfile.TemporaryDirectory() as folder, Progress(console=Console(stderr=True), disable=quiet) as progress:
        inputs = Path(folder)
        make(sorted({name for case in cases for name in case.files}), inputs)
        bar = progress.add_task("answering", total=len(cases))
        async with AsyncHuggingGPT(url) as client:

            async def one(case: Case) -> Outcome:
                outcome = await run_case(client, case, inputs)
                progress.advance(bar)
                return outcome

            return await gather_limited(cases, one, limit=concurrency)


async def run_case(client: AsyncHuggingGPT, case: Case, inputs: Path) -> Outcome:
    """Sends the requests of a case and judges the last answer; the folder has its files.

    A refusal of the request is an answer; other errors of the client are raised.
    """
    started = time.perf_counter()
    try:
        run = None
        for request in (*case.before, case.request):
            run = await _send(client, request, inputs, run)
    except InvalidRequest as error:
        judgement = judge(case, REFUSED, Answer(f"{error}"))
        return Outcome(case, judgement, REFUSED, f"{error}", (), time.perf_counter() - started)
    assert run is not None
    seconds = time.perf_counter() - started
    files = [Output(artifact.name, await client.read(artifact)) for artifact in run.artifacts]
    judgement = judge(case, run.state, Answer(run.answer, tuple(files), inputs))
    return Outcome(case, judgement, run.state, run.answer, tuple(one.task["task"] for one in run.tasks), seconds)


async def _send(client: AsyncHuggingGPT, request: Request, inputs: Path, previous: Run | None) -> Run:
    """Sends a request, which continues the previous one, and waits for its end."""
    files = [inputs / name for name in request.files]
    if previous is None:
        return await client.ask(request.text, files, budget={"wall_time": RUN_SECONDS})
    return await client.ask(request.text, files, budget={"wall_time": RUN_SECONDS}, conversation=previous)

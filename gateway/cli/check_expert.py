"""The command check-expert: runs the conformance checks of an expert and prints their findings."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from gateway.cli import terminal
from gateway.cli.errors import Problem
from gateway.cli.options import Json, Policy

if TYPE_CHECKING:
    from gateway.conformance.check import CheckRequest, Report

SECONDS_BETWEEN_LINES = 5.0
"""Interval of progress lines where standard error is not a terminal."""


def check_expert(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Address of the expert.")],
    *,
    every_model: Annotated[
        bool, typer.Option("--every-model", help="Call every model of every task instead of one.")
    ] = False,
    policy: Annotated[
        Policy, typer.Option(help="open: also call external models and send them samples.")
    ] = Policy.LOCAL,
    timeout: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="Limit of one call whose model is loaded.")
    ] = 20.0,
    load_timeout: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Limit of loading a model.")] = 300.0,
    pid: Annotated[
        int | None, typer.Option(metavar="PROCESS", help="The expert's process: it gets SIGTERM to check its shutdown.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Call an expert as the orchestrator does, and check that it implements the expert interface correctly.

    Checks its description and health, each task with a small sample, invalid calls, deadlines, cancelled calls,
    overload and, with --pid, its shutdown. Samples and results go through the artifact store at ARTIFACTS_URL; the
    expert must use the same store.

    [bold]Examples[/]

      python -m experts.host my_expert &

      hugginggpt check-expert 127.0.0.1:50051 --pid $!

    Each check passes, gives a warning, fails, or is not run.

    Exit status: 0 no check failed and at least one task succeeded; 1 a check failed or no task succeeded; 2 invalid
    arguments.
    """
    from gateway.conformance.check import CheckRequest

    request = CheckRequest(address, every_model, policy is Policy.OPEN, timeout, load_timeout, pid)
    with terminal.problems_reported():
        report = asyncio.run(_check(request))
        if as_json:
            terminal.print_json({"ok": report.is_ok, "checks": [asdict(finding) for finding in report.findings]})
        else:
            _print_report(report)
    raise typer.Exit(0 if report.is_ok else 1)


async def _check(request: "CheckRequest") -> "Report":
    """Checks an expert and shows the progress.

    Raises:
        Problem: nothing listens at the address, or the server there is not an expert.
    """
    from gateway.conformance.check import check
    from services.common.errors import ServiceError

    progress = Progress(terminal.err())
    try:
        async with progress.running():
            return await check(request, progress.begin)
    except ServiceError as error:
        raise Problem(error.message, remedy=error.remedy) from error


def _print_report(report: "Report") -> None:
    terminal.print_findings(report.findings, "expected")
    counts = terminal.count_findings(report.findings)
    terminal.out().print(
        Text(f"\n{counts}. protos/hugginggpt/v1/expert.proto specifies what an expert must do.", style="dim")
    )


class Progress:
    """Shows the active check and the seconds since it started.

    Args:
        console: console of standard error.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._check = ""
        self._start_time = time.monotonic()

    def begin(self, check: str) -> None:
        """Shows the check that starts now."""
        self._check, self._start_time = check, time.monotonic()
        if not self._console.is_terminal:
            self._print(check)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Updates the display until the block exits."""
        task = asyncio.create_task(self._run(), name="progress")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        if not self._console.is_terminal:
            while True:
                await asyncio.sleep(SECONDS_BETWEEN_LINES)
                self._print(self._text())
        with self._console.status("") as status:
            while True:
                status.update(self._text())
                await asyncio.sleep(0.5)

    def _text(self) -> str:
        seconds = time.monotonic() - self._start_time
        return f"{self._check}: waiting for {seconds:.0f} s"

    def _print(self, text: str) -> None:
        self._console.print(text, style="dim", markup=False, soft_wrap=True)

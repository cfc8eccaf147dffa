"""Output of the commands: for terminals, for files, or as JSON."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.markdown import Markdown
from rich.text import Text

from gateway.cli.errors import FAILED, INTERRUPTED, Problem
from gateway.cli.follow import FollowedRun
from gateway.cli.live_view import LineView, LiveTable, NullView, View, one_line, printable
from gateway.cli.run import report
from gateway.client import HuggingGPTError


def out() -> Console:
    return Console(highlight=False)


def err() -> Console:
    return Console(stderr=True, highlight=False)


def view(*, as_json: bool) -> View:
    """A live table on a terminal, otherwise lines on standard error; nothing for --json."""
    if as_json:
        return NullView()
    console = out()
    return LiveTable(console) if console.is_terminal else LineView(err())


def print_result(answered: FollowedRun, *, as_json: bool) -> None:
    """Prints the answer to standard output, and problems to standard error."""
    run, pipeline = answered.run, answered.pipeline
    if as_json:
        saved = {"pipeline": {"name": pipeline.name, "version": pipeline.version}} if pipeline else {}
        print_json({**report(run, answered.saved), **saved})
    else:
        _print_answer(answered)
    if pipeline and not as_json:
        name = pipeline.name
        err().print(f"saved as {name}, version {pipeline.version}: hugginggpt run {name} --file FILE", soft_wrap=True)
    if run.awaits_approval:
        err().print(f"the plan awaits approval: hugginggpt approve {run.run_id}", soft_wrap=True)
    failure = run.failure or {}
    message = failure.get("message", "")
    if message and (as_json or message not in run.answer):  # the answer usually contains the message
        print_problem(one_line(f"{run.status}: {message}"), one_line(failure.get("remedy", "")))


def print_json(content: Any) -> None:
    is_utf = sys.stdout.encoding.lower().startswith("utf")
    sys.stdout.write(json.dumps(content, ensure_ascii=not is_utf, indent=2) + "\n")


def print_text(text: str) -> None:
    """Prints text unchanged."""
    sys.stdout.write(text)


def print_done(message: str, content: Any, *, as_json: bool) -> None:
    """Prints a confirmation."""
    if as_json:
        print_json(content)
    else:
        typer.echo(message)


def print_problem(message: str, remedy: str) -> None:
    console = err()
    console.print(Text.assemble(("error: ", "bold red"), printable(message)), soft_wrap=True)
    if remedy:
        console.print(Text(f"  {printable(remedy)}", style="dim"), soft_wrap=True)


@contextmanager
def problems_reported() -> Iterator[None]:
    """Turns problems and Ctrl-C into an error message and an exit status."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # text streams; replaces what the encoding lacks
    try:
        yield
        sys.stdout.flush()
    except KeyboardInterrupt:
        print_problem("cancelled", "")
        raise typer.Exit(INTERRUPTED) from None
    except Problem as problem:
        print_problem(problem.message, problem.remedy)
        raise typer.Exit(problem.status) from None
    except HuggingGPTError as error:
        translated = Problem.of(error)
        print_problem(translated.message, translated.remedy)
        raise typer.Exit(translated.status) from None
    except BrokenPipeError:
        raise
    except OSError as error:
        print_problem(str(error), "")
        raise typer.Exit(FAILED) from None


def _print_answer(answered: FollowedRun) -> None:
    console = out()
    text = printable(answered.run.answer)
    if console.is_terminal:
        console.print()
        console.print(Markdown(text))
        console.print()
    elif text:
        sys.stdout.write(text.rstrip("\n") + "\n")
    target = console if console.is_terminal else err()
    for saved in answered.saved:
        target.print(
            Text.assemble(("saved ", "dim"), saved["path"], (f"  {saved['media_type']}", "dim")), soft_wrap=True
        )

"""How things are told: to a person on a terminal, to a file, or as JSON."""

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
from gateway.cli.follow import Answered
from gateway.cli.live_view import Lines, Picture, Silent, View, one_line, printable
from gateway.cli.run import report
from gateway.client import HuggingGPTError


def out() -> Console:
    return Console(highlight=False)


def err() -> Console:
    return Console(stderr=True, highlight=False)


def view(*, as_json: bool) -> View:
    """A picture on a terminal, lines to standard error elsewhere, nothing for --json."""
    if as_json:
        return Silent()
    console = out()
    return Picture(console) if console.is_terminal else Lines(err())


def tell(answered: Answered, *, as_json: bool) -> None:
    """The answer to standard output; what is missing from it to standard error."""
    if as_json:
        kept = {"pipeline": {"name": answered.kept.name, "version": answered.kept.version}} if answered.kept else {}
        tell_json({**report(answered.run, answered.saved), **kept})
    else:
        _tell_answer(answered)
    if answered.kept and not as_json:
        name, version = answered.kept.name, answered.kept.version
        err().print(f"kept as {name}, version {version}: hugginggpt run {name} --file FILE", soft_wrap=True)
    if answered.run.waits:
        err().print(f"the plan waits: hugginggpt approve {answered.run.run_id}", soft_wrap=True)
    failure = answered.run.failure or {}
    message = failure.get("message", "")
    if message and (as_json or message not in answered.run.answer):  # which mostly says it already
        tell_problem(one_line(f"{answered.run.status}: {message}"), one_line(failure.get("remedy", "")))


def tell_json(content: Any) -> None:
    known = sys.stdout.encoding.lower().startswith("utf")
    sys.stdout.write(json.dumps(content, ensure_ascii=not known, indent=2) + "\n")


def tell_text(text: str) -> None:
    """As it is, for a file."""
    sys.stdout.write(text)


def tell_done(words: str, content: Any, *, as_json: bool) -> None:
    """Something was done that leaves nothing to show."""
    if as_json:
        tell_json(content)
    else:
        typer.echo(words)


def tell_problem(message: str, remedy: str) -> None:
    console = err()
    console.print(Text.assemble(("error: ", "bold red"), printable(message)), soft_wrap=True)
    if remedy:
        console.print(Text(f"  {printable(remedy)}", style="dim"), soft_wrap=True)


@contextmanager
def problems_told() -> Iterator[None]:
    """Turns problems, and Ctrl-C, into a message and an exit status."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # text streams; one that knows few letters shows the rest
    try:
        yield
        sys.stdout.flush()
    except KeyboardInterrupt:
        tell_problem("cancelled", "")
        raise typer.Exit(INTERRUPTED) from None
    except Problem as problem:
        tell_problem(problem.message, problem.remedy)
        raise typer.Exit(problem.status) from None
    except HuggingGPTError as error:
        known = Problem.of(error)
        tell_problem(known.message, known.remedy)
        raise typer.Exit(known.status) from None
    except BrokenPipeError:
        raise
    except OSError as error:
        tell_problem(str(error), "")
        raise typer.Exit(FAILED) from None


def _tell_answer(answered: Answered) -> None:
    console = out()
    text = printable(answered.run.answer)
    if console.is_terminal:
        console.print()
        console.print(Markdown(text))
        console.print()
    elif text:
        sys.stdout.write(text.rstrip("\n") + "\n")
    told = console if console.is_terminal else err()
    for saved in answered.saved:
        told.print(Text.assemble(("saved ", "dim"), saved["path"], (f"  {saved['media_type']}", "dim")), soft_wrap=True)

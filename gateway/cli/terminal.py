"""Output of the commands: text for terminals and files, JSON, and errors."""

import json
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.text import Text

from gateway.cli.errors import FAILED, INTERRUPTED, Problem

if TYPE_CHECKING:
    from gateway.client import Page

_BIDI_CONTROLS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
"""Bidirectional classes of the characters that change the text direction."""


def out() -> Console:
    return Console(highlight=False)


def err() -> Console:
    return Console(stderr=True, highlight=False)


def printable(text: str) -> str:
    """Removes control characters and direction changes: text of models and files must not control the terminal."""
    return "".join(letter for letter in text if letter in "\n\t" or not _is_control(letter))


def one_line(text: str) -> str:
    """Makes a single printable line, without invisible characters."""
    line = " ".join(text.expandtabs(1).splitlines())
    return "".join(letter for letter in line if unicodedata.category(letter) not in ("Cc", "Cf"))


def _is_control(letter: str) -> bool:
    return unicodedata.category(letter) == "Cc" or unicodedata.bidirectional(letter) in _BIDI_CONTROLS


def print_json(content: Any) -> None:
    is_utf = sys.stdout.encoding.lower().startswith("utf")
    sys.stdout.write(json.dumps(content, ensure_ascii=not is_utf, indent=2) + "\n")


def print_text(text: str) -> None:
    """Prints text unchanged."""
    sys.stdout.write(text)


def print_row(row: Text) -> None:
    """Prints a row of a list: one line on a terminal, where the end of a long one is left out."""
    console = out()
    if console.is_terminal:
        console.print(row, no_wrap=True, overflow="ellipsis")
    else:
        console.print(row, soft_wrap=True)


def print_page(name: str, page: "Page[Any]") -> None:
    """Prints a page of a list as JSON."""
    more = {"next_page": page.next} if page.next else {}
    print_json({name: [each.model_dump(mode="json") for each in page], **more})


def print_next_page(command: str, token: str) -> None:
    """Prints the command that lists the next page, if there is one."""
    if token:
        err().print(f"more: {command} --page {token}", soft_wrap=True)


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
    from gateway.client import HuggingGPTError

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

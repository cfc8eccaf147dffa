"""Output of the commands: text for terminals and files, JSON, and errors."""

import json
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.cli.errors import FAILED, INTERRUPTED, Problem

if TYPE_CHECKING:
    from gateway.client import Page
    from gateway.conformance.findings import Finding

_BIDI_CONTROLS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
"""Bidirectional classes of the characters that change the text direction."""


_LEVELS = {
    "ok": ("passed", "green"),
    "warning": ("warning", "yellow"),
    "wrong": ("failed", "red"),
    "not_tried": ("not run", "dim"),
}
"""Label and style of each level of findings."""

_LONGEST_CHECK = 26
"""Width of the column of checks in cells."""


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


def print_findings(findings: "Sequence[Finding]", remedy_label: str) -> None:
    """Prints a row per finding: level, check, and what was found, with the remedy below.

    Args:
        findings: findings of checks.
        remedy_label: what the remedies are.
    """
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(max_width=_LONGEST_CHECK, overflow="fold")
    table.add_column(overflow="fold")
    for finding in findings:
        label, style = _LEVELS[finding.level]
        found = Text(printable(finding.found))
        if finding.remedy:
            found.append(f"\n{remedy_label}: {printable(finding.remedy)}", style="dim")
        table.add_row(Text(label, style=style), Text(printable(finding.check)), found)
    out().print(table)


def count_findings(findings: "Sequence[Finding]") -> str:
    """The number of findings of each level."""
    counts = Counter(str(finding.level) for finding in findings)
    return ", ".join(f"{counts[level]} {label}" for level, (label, _) in _LEVELS.items())


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

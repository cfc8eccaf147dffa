"""hugginggpt check-expert: runs the conformance checks and prints their findings."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.cli import terminal
from gateway.cli.check_expert.check import CheckRequest, check
from gateway.cli.check_expert.progress import Progress
from gateway.cli.doctor_finding import Finding, Level
from gateway.cli.live_view import printable

_STYLES = {Level.OK: "green", Level.WARNING: "yellow", Level.WRONG: "red", Level.NOT_TRIED: "dim"}
_LABELS = {Level.OK: "passed", Level.WARNING: "warning", Level.WRONG: "failed", Level.NOT_TRIED: "not run"}


def check_and_print(request: CheckRequest, *, as_json: bool) -> bool:
    """Checks an expert and prints every finding.

    Returns:
        Whether no check failed and at least one task succeeded.
    """
    report = asyncio.run(check(request, Progress(terminal.err())))
    if as_json:
        terminal.print_json({"ok": report.is_ok, "checks": [asdict(finding) for finding in report.findings]})
    else:
        console = Console(highlight=False)
        console.print(_table(report.findings))
        console.print(_summary(report.findings))
    return report.is_ok


def _table(findings: Sequence[Finding]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("", "check", "found", "expected"):
        table.add_column(column, overflow="fold")
    for finding in findings:
        label = Text(_LABELS[finding.level], style=_STYLES[finding.level])
        table.add_row(label, *(Text(printable(cell)) for cell in (finding.check, finding.found, finding.remedy)))
    return table


def _summary(findings: Sequence[Finding]) -> Text:
    counts = Counter(finding.level for finding in findings)
    text = ", ".join(f"{counts[level]} {label}" for level, label in _LABELS.items())
    return Text(f"\n{text}. protos/hugginggpt/v1/expert.proto specifies what an expert must do.", style="dim")

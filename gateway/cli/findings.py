"""Renders findings of checks as a table."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from gateway.cli.terminal import printable
from gateway.conformance.findings import Finding, Level

LABELS = {Level.OK: "passed", Level.WARNING: "warning", Level.WRONG: "failed", Level.NOT_TRIED: "not run"}
_STYLES = {Level.OK: "green", Level.WARNING: "yellow", Level.WRONG: "red", Level.NOT_TRIED: "dim"}

_LONGEST_NAME = 26
"""Width of the column of checks in cells."""


def render(findings: Sequence[Finding], remedy_label: str) -> Table:
    """Renders a row per finding: level, check, and what was found, with the remedy below.

    Args:
        findings: findings to render.
        remedy_label: what the remedies are.
    """
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(max_width=_LONGEST_NAME, overflow="fold")
    table.add_column(overflow="fold")
    for finding in findings:
        found = Text(printable(finding.found))
        if finding.remedy:
            found.append(f"\n{remedy_label}: {printable(finding.remedy)}", style="dim")
        label = Text(LABELS[finding.level], style=_STYLES[finding.level])
        table.add_row(label, Text(printable(finding.check)), found)
    return table

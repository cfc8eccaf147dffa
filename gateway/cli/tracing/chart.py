"""Renders a waterfall on a terminal, with a row and a time bar per span."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from gateway.cli.live_view import one_line
from gateway.cli.tracing.waterfall import ATTEMPT, TASK, WAIT, Span, Waterfall

_STYLES = {"select": "cyan", "wait": "yellow", "approval": "yellow", "task": "dim", "handover": "magenta"}
_FAILURES = frozenset({"failed", "lost"})
_BARS = {TASK: ("─", "-"), WAIT: ("░", "."), "approval": ("░", ".")}
"""Characters of bars, and their ASCII replacements; other bars are solid."""

_SOLID = ("█", "#")
_WAITING = ("░", ".")
_SIDES: tuple[Literal["left", "right"], ...] = ("left", "left", "right", "left")
_GAP = 2
"""Cells between columns."""

_LONGEST_NAME, _NARROWEST, _WIDEST = 32, 16, 100
"""Widths in cells: maximum of the name column, minimum and maximum of the bar."""


def render(waterfall: Waterfall, width: int, *, plain: bool) -> RenderableType:
    """Renders all spans as a table: name, details, duration and bar.

    Args:
        waterfall: waterfall to render.
        width: width of the terminal in cells.
        plain: use only ASCII.
    """
    rows = [(_name(span), _told(span), _seconds(span, plain=plain)) for span in waterfall.spans]
    table = Table.grid(padding=(0, _GAP, 0, 0))
    overflow: Literal["crop", "ellipsis"] = "crop" if plain else "ellipsis"
    columns: Sequence[tuple[str, Literal["left", "right"]]] = (
        ("", "left"),
        ("dim", "left"),
        ("", "right"),
        ("", "left"),
    )
    for column_width, (style, justify) in zip(_widths(rows, width), columns, strict=True):
        table.add_column(width=column_width, style=style, justify=justify, no_wrap=True, overflow=overflow)
    for (name, details, duration), span in zip(rows, waterfall.spans, strict=True):
        style = "red" if span.state in _FAILURES else ""
        table.add_row(Text(name), Text(details, style=style), duration, _Bar(span, waterfall.seconds, plain=plain))
    return table


def _widths(rows: Sequence[tuple[str, ...]], width: int) -> tuple[int, ...]:
    names, details, seconds = (max((cell_len(row[column]) for row in rows), default=0) for column in range(3))
    names = min(names, _LONGEST_NAME)
    left = max(width - names - seconds - 3 * _GAP, 2 * _NARROWEST)
    details = min(details, left // 2)
    return names, details, seconds, min(left - details, _WIDEST)


@dataclass(frozen=True)
class _Bar:
    """Bar of a span, scaled to the available width."""

    span: Span
    total: float
    plain: bool

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> Iterator[Segment]:
        width = options.max_width
        begin, working, end = (self._cell(moment, width) for moment in self._times())
        end = min(max(end, begin + 1), width)  # at least one cell
        begin, working = min(begin, end - 1), min(max(working, begin), end - 1)
        yield Segment(" " * begin)
        yield Segment(_WAITING[self.plain] * (working - begin), Style.parse("yellow"))
        yield Segment(_mark(self.span)[self.plain] * (end - working), Style.parse(_style(self.span)))

    def _times(self) -> tuple[float, float, float]:
        """Start of the span, start of the work, and end."""
        end = self.total if self.span.end is None else self.span.end
        working = self.span.begin if self.span.work is None else max(self.span.begin, end - self.span.work)
        return self.span.begin, working, end

    def _cell(self, moment: float, width: int) -> int:
        return min(round(moment / self.total * width), width) if self.total else 0


def _mark(span: Span) -> tuple[str, str]:
    return _BARS.get(span.kind, _SOLID)


def _style(span: Span) -> str:
    if span.state in _FAILURES:
        return "red"
    return _STYLES.get(span.kind, "green")


def _name(span: Span) -> str:
    if span.kind == TASK:
        return one_line(f"{span.task_id} {span.what}")
    name = f"attempt {span.attempt}" if span.kind == ATTEMPT else span.kind
    return f"  {name}" if span.task_id else name


def _told(span: Span) -> str:
    """What did the work, and notes."""
    if span.kind == TASK:
        return span.state
    first_token = f"first token after {_duration(span.first - span.begin)}" if span.first is not None else ""
    state = span.state if span.state in _FAILURES else ""
    return one_line(", ".join(filter(None, (span.by, state, span.note, first_token))))


def _seconds(span: Span, *, plain: bool) -> str:
    if span.end is None:
        return "..." if plain else "…"
    return _duration(span.end - span.begin)


def _duration(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"

"""The command trace: prints the waterfall of a run as a chart with a row and a time bar per span, or as JSON."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from gateway.cli import terminal
from gateway.cli.connect import connected_gateway
from gateway.cli.options import ApiKey, Json, RunId, Url
from gateway.cli.terminal import one_line
from gateway.cli.waterfall import ATTEMPT, TASK, WAIT, Span, Waterfall

if TYPE_CHECKING:
    from gateway.client import HuggingGPT, Run

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


def trace(run: RunId, url: Url = None, api_key: ApiKey = None, as_json: Json = False) -> None:
    """Show the time that each step of a run took: planning, model selection, waiting, attempts and the answer.

    In the bar of an attempt, the solid part is work; the light part is transport and waiting inside the expert.

    [bold]Example[/]

      hugginggpt trace run_19a2b3c4d5e6f708192a3b4
    """
    with terminal.problems_reported():
        with connected_gateway(url, api_key) as client:
            found = client.get(run)
            waterfall = Waterfall.of(found, _past_events(client, found))
        if as_json:
            terminal.print_json(_report(waterfall))
        else:
            _print_chart(waterfall)


def _print_chart(waterfall: Waterfall) -> None:
    console = terminal.out()
    console.print(_title(waterfall), soft_wrap=True)
    console.print(render(waterfall, console.width, plain=not console.encoding.startswith("utf")))
    console.print(_summary(waterfall), soft_wrap=True, style="dim")
    if waterfall.run.is_waiting:
        console.print(f"the plan awaits approval: hugginggpt approve {waterfall.run.run_id}", soft_wrap=True)


def render(waterfall: Waterfall, width: int, *, plain: bool) -> RenderableType:
    """Renders all spans as a table: name, details, duration and bar.

    Args:
        waterfall: waterfall to render.
        width: width of the terminal in cells.
        plain: use only ASCII.
    """
    rows = [(_name(span), _details(span), _seconds(span, plain=plain)) for span in waterfall.spans]
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
        begin, working, end = (self._cell(seconds, width) for seconds in self._times())
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

    def _cell(self, seconds: float, width: int) -> int:
        return min(round(seconds / self.total * width), width) if self.total else 0


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


def _details(span: Span) -> str:
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


_DIGITS = 6
"""Decimal places of seconds: events have microseconds."""


def _past_events(client: "HuggingGPT", run: "Run") -> Iterator[Any]:
    """Yields the events of a run up to its present state, without waiting for more."""
    if not run.last_sequence:
        return
    with closing(client.watch(run.run_id)) as events:
        for event in events:
            yield event.content
            if event.sequence >= run.last_sequence:
                return


def _title(waterfall: Waterfall) -> str:
    trace = f"  trace {waterfall.trace_id}" if waterfall.trace_id else ""
    state = waterfall.run.state.replace("_", " ")
    return one_line(f"{waterfall.run.run_id}  {state}  {waterfall.seconds:.2f} s{trace}")


def _summary(waterfall: Waterfall) -> str:
    work, waits = _times(waterfall)
    usage = waterfall.run.usage
    tokens = usage.get("input_tokens", 0), usage.get("output_tokens", 0)
    llm = f"; LLM tokens {tokens[0]} in, {tokens[1]} out" if any(tokens) else ""
    cost = f"; cost {usage['cost']:.4g}" if usage.get("cost") else ""
    return f"work {work:.2f} s, waiting {waits:.2f} s{llm}{cost}"


def _times(waterfall: Waterfall) -> tuple[float, float]:
    """Seconds of work, and seconds of waiting before and inside experts."""
    spans = list(waterfall.spans)
    work = sum(span.work or 0.0 for span in spans)
    queued = sum(_length(span) for span in spans if span.kind == WAIT)
    inside = sum(max(0.0, _length(span) - span.work) for span in spans if span.work is not None)
    return work, queued + inside


def _length(span: Span) -> float:
    return (span.end or span.begin) - span.begin


def _report(waterfall: Waterfall) -> dict[str, Any]:
    work, waits = _times(waterfall)
    return {
        "run_id": waterfall.run.run_id,
        "trace_id": waterfall.trace_id or None,
        "state": waterfall.run.state,
        "began": waterfall.start_time.isoformat() if waterfall.start_time else None,
        "seconds": waterfall.seconds,
        "work_seconds": round(work, _DIGITS),
        "waited_seconds": round(waits, _DIGITS),
        "usage": waterfall.run.usage,
        "spans": [_span(span) for span in waterfall.spans],
    }


def _span(span: Span) -> dict[str, Any]:
    content = {
        "kind": span.kind,
        "task_id": span.task_id,
        "begin": span.begin,
        "end": span.end,
        "seconds": None if span.end is None else round(span.end - span.begin, _DIGITS),
    }
    if span.kind == ATTEMPT:
        waited = None if span.work is None else round(max(0.0, _length(span) - span.work), _DIGITS)
        content |= {"attempt": span.attempt, "work_seconds": span.work, "waited_seconds": waited}
    if span.first is not None:
        content["first_words_seconds"] = round(span.first - span.begin, _DIGITS)
    texts = {"task": span.what, "by": span.by, "state": span.state, "note": span.note}
    return {**content, **{name: text for name, text in texts.items() if text}}

"""Prints the summary of a batch: counts, slowest items and errors."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.text import Text

from gateway.cli import terminal
from gateway.cli.batch.follow import FollowedBatch
from gateway.cli.batch.output import LINES, SUMMARY, TABLE
from gateway.cli.terminal import one_line
from gateway.client import Batch, BatchCounts, BatchResult, BatchSummary

LISTED_ERRORS, LISTED_ITEMS = 10, 3
"""Numbers of listed kinds of error, and of listed slowest items."""

NAME_CHARACTERS, TEXT_CHARACTERS = 32, 120
"""Width of the name column, and length limit of an output or error in characters."""

_STATES = ("running", "completed", "incomplete", "failed", "cancelled", "waiting")
_STATE_NAMES = {"waiting": "queued"}
"""States whose name differs in items."""


def print_summary(ended: FollowedBatch, *, as_json: bool) -> None:
    """Prints the summary to standard output, and problems to standard error."""
    if as_json:
        terminal.print_json(ended.report())
    else:
        for line in _lines(ended):
            terminal.out().print(line, soft_wrap=True)
    if failure := ended.batch.failure:
        terminal.print_problem(one_line(failure.message), one_line(failure.remedy))
    if ended.is_interrupted or ended.summary.counts.waiting:
        terminal.err().print(f"resume with: hugginggpt resume {ended.batch.batch_id}{_out(ended)}", soft_wrap=True)
    elif ended.summary.counts.failed or ended.summary.counts.incomplete:
        terminal.err().print(_retry_hint(ended), soft_wrap=True)


def line(batch: Batch) -> Text:
    """Renders a batch for the list."""
    started = batch.create_time.astimezone().strftime("%Y-%m-%d %H:%M") if batch.create_time else ""
    return Text.assemble(
        (batch.batch_id, "bold"),
        f"  {batch.state:<10}  {started}  {describe_counts(batch.counts)}  ",
        (source(batch), "dim"),
    )


def describe_counts(counts: BatchCounts) -> str:
    """Describes the number of items by state."""
    values = (
        f"{getattr(counts, state)} {_STATE_NAMES.get(state, state)}" for state in _STATES if getattr(counts, state)
    )
    return f"{items(counts.total)}: {', '.join(values)}"


def items(count: int) -> str:
    return f"{count} item{'' if count == 1 else 's'}"


def source(batch: Batch) -> str:
    """Describes what the batch runs."""
    match batch.spec:
        case {"pipeline": {"name": name, "version": version}}:
            return f"{name}@{version}"
        case {"request": str() as request}:
            return one_line(" ".join(request.split()))[:80]
    return "a plan"


def _lines(ended: FollowedBatch) -> Iterator[Text]:
    yield from _items(ended.results)
    summary = ended.summary
    took = f" in {ended.seconds:.1f} s" if ended.seconds is not None else ""
    yield Text.assemble(
        (summary.batch_id, "bold"), f" {summary.state}{took}: {describe_counts(summary.counts)}{_cost(summary)}"
    )
    if any(item.get("seconds") for item in summary.slowest):
        yield Text(one_line(f"  {_durations(summary.seconds)}; slowest {_slowest(summary.slowest)}"))
    elif summary.slowest:
        yield Text("  every result was reused from an earlier run; --fresh runs every task again")
    for error in summary.errors[:LISTED_ERRORS]:
        yield _error(error)
    if len(summary.errors) > LISTED_ERRORS:
        yield Text(f"  and {len(summary.errors) - LISTED_ERRORS} more kinds of error: see {SUMMARY}")
    if ended.folder:
        yield Text(f"saved {ended.folder.path}/: {LINES}, {TABLE}, {SUMMARY}")


def _items(results: Sequence[BatchResult]) -> Iterator[Text]:
    width = max((len(one_line(result.name)) for result in results), default=0)
    for result in results:
        output_text = "; ".join(" ".join(text.split()) for text in result.outputs.values() if isinstance(text, str))
        style, what = ("red", result.error.message) if result.error else ("", output_text or result.state)
        line = (
            f"{result.index:>3} {one_line(result.name):<{min(width, NAME_CHARACTERS)}} {result.seconds or 0:>6.2f} s  "
        )
        yield Text.assemble(line, (one_line(what)[:TEXT_CHARACTERS], style))


def _durations(seconds: Mapping[str, float | None]) -> str:
    return f"{seconds.get('median') or 0:.2f} s per item, {seconds.get('p95') or 0:.2f} s at the 95th percentile"


def _cost(summary: BatchSummary) -> str:
    return f"; cost {summary.cost:.4g}" if summary.cost else ""


def _slowest(slowest: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{item.get('name')} {item.get('seconds'):.2f} s" for item in slowest[:LISTED_ITEMS])


def _error(error: Mapping[str, Any]) -> Text:
    count, names = error.get("count", 0), error.get("names", ())
    more = ", …" if count > len(names) else ""
    message = f"  {count} × {error.get('message') or error.get('reason')}"
    return Text.assemble((one_line(message), "red"), f"  ({one_line(', '.join(names))}{more})")


def _retry_hint(ended: FollowedBatch) -> str:
    if ended.can_retry:
        return f"retry the failed items: hugginggpt resume {ended.batch.batch_id} --failed{_out(ended)}"
    hint = "fix their inputs, and start a batch with them: hugginggpt batch --help"
    return f"the failed items cannot succeed as sent: {hint}"


def _out(ended: FollowedBatch) -> str:
    return f" --out {ended.folder.path}" if ended.folder else " --out FOLDER"

"""How a batch ended, for people: counts, the slowest items, what went wrong how often."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.text import Text

from gateway.cli import terminal
from gateway.cli.batch.finish import Ended
from gateway.cli.batch.output_folder import LINES, SUMMARY, TABLE
from gateway.cli.live_view import one_line
from gateway.client import Batch, BatchCounts, BatchResult, BatchSummary

SHOWN, NAMED = 10, 3
"""Kinds of error that are told, and slowest items."""

WIDE, MUCH = 32, 120
"""Letters of a name that are kept in line with others, and of what an item gave or why it gave nothing."""

_STATES = ("running", "completed", "incomplete", "failed", "cancelled", "waiting")
_CALLED = {"waiting": "queued"}
"""As the items themselves say it."""


def tell(ended: Ended, *, as_json: bool) -> None:
    """The summary to standard output, why there is none to standard error."""
    if as_json:
        terminal.tell_json(ended.report())
    else:
        for line in _lines(ended):
            terminal.out().print(line, soft_wrap=True)
    if failure := ended.batch.failure:
        terminal.tell_problem(one_line(failure.message), one_line(failure.remedy))
    if ended.interrupted or ended.summary.counts.waiting:
        terminal.err().print(f"go on: hugginggpt resume {ended.batch.batch_id}{_out(ended)}", soft_wrap=True)
    elif ended.summary.counts.failed or ended.summary.counts.incomplete:
        terminal.err().print(_mending(ended), soft_wrap=True)


def line(batch: Batch) -> Text:
    """A batch in a list."""
    begun = batch.create_time.astimezone().strftime("%Y-%m-%d %H:%M") if batch.create_time else ""
    return Text.assemble(
        (batch.batch_id, "bold"), f"  {batch.state:<10}  {begun}  {counted(batch.counts)}  ", (source(batch), "dim")
    )


def counted(counts: BatchCounts) -> str:
    """How many items stand where."""
    told = (f"{getattr(counts, state)} {_CALLED.get(state, state)}" for state in _STATES if getattr(counts, state))
    return f"{items(counts.total)}: {', '.join(told)}"


def items(count: int) -> str:
    return f"{count} item{'' if count == 1 else 's'}"


def source(batch: Batch) -> str:
    """What it runs on its items."""
    match batch.spec:
        case {"pipeline": {"name": name, "version": version}}:
            return f"{name}@{version}"
        case {"request": str() as request}:
            return one_line(" ".join(request.split()))[:80]
    return "a plan"


def _lines(ended: Ended) -> Iterator[Text]:
    yield from _items(ended.results)
    summary = ended.summary
    took = f" in {ended.seconds:.1f} s" if ended.seconds is not None else ""
    yield Text.assemble(
        (summary.batch_id, "bold"), f" {summary.state}{took}: {counted(summary.counts)}{_cost(summary)}"
    )
    if any(item.get("seconds") for item in summary.slowest):  # else all was known from earlier runs
        yield Text(one_line(f"  {_each(summary.seconds)}; slowest {_slowest(summary.slowest)}"))
    for error in summary.errors[:SHOWN]:
        yield _error(error)
    if len(summary.errors) > SHOWN:
        yield Text(f"  and {len(summary.errors) - SHOWN} more kinds of error: see {SUMMARY}")
    if ended.folder:
        yield Text(f"saved {ended.folder.path}/: {LINES}, {TABLE}, {SUMMARY}")


def _items(results: Sequence[BatchResult]) -> Iterator[Text]:
    width = max((len(one_line(result.name)) for result in results), default=0)
    for result in results:
        said = "; ".join(" ".join(text.split()) for text in result.outputs.values() if isinstance(text, str))
        style, what = ("red", result.error.message) if result.error else ("", said or result.state)
        line = f"{result.index:>3} {one_line(result.name):<{min(width, WIDE)}} {result.seconds or 0:>6.2f} s  "
        yield Text.assemble(line, (one_line(what)[:MUCH], style))


def _each(seconds: Mapping[str, float | None]) -> str:
    return f"{seconds.get('median') or 0:.2f} s an item, {seconds.get('p95') or 0:.2f} s at the 95th percentile"


def _cost(summary: BatchSummary) -> str:
    return f"; cost {summary.cost:.4g}" if summary.cost else ""


def _slowest(slowest: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{item.get('name')} {item.get('seconds'):.2f} s" for item in slowest[:NAMED])


def _error(error: Mapping[str, Any]) -> Text:
    count, names = error.get("count", 0), error.get("names", ())
    more = ", …" if count > len(names) else ""
    said = f"  {count} × {error.get('message') or error.get('reason')}"
    return Text.assemble((one_line(said), "red"), f"  ({one_line(', '.join(names))}{more})")


def _mending(ended: Ended) -> str:
    if ended.again:
        return f"again the failed only: hugginggpt resume {ended.batch.batch_id} --failed{_out(ended)}"
    how = "mend their inputs, and start a batch with these: hugginggpt batch --help"
    return f"none of the failed can run as it was sent: {how}"


def _out(ended: Ended) -> str:
    return f" --out {ended.folder.path}" if ended.folder else " --out FOLDER"

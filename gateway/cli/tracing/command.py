"""Implementation of hugginggpt trace."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

from gateway.cli import terminal
from gateway.cli.live_view import one_line
from gateway.cli.run_commands import connected_gateway
from gateway.cli.tracing.chart import render
from gateway.cli.tracing.waterfall import ATTEMPT, AWAITING_APPROVAL, WAIT, Span, Waterfall
from gateway.client import HuggingGPT, Run

_DIGITS = 6
"""Decimal places of seconds: events have microseconds."""


def show(run_id: str, url: str | None, api_key: str | None, *, as_json: bool) -> None:
    """Prints the waterfall of a run, up to its present state."""
    with connected_gateway(url, api_key) as client:
        run = client.get(run_id)
        waterfall = Waterfall.of(_past_events(client, run))
        waterfall.run_id, waterfall.state = run.run_id, run.state
    if as_json:
        terminal.print_json(_report(waterfall))
        return
    console = terminal.out()
    console.print(_title(waterfall), soft_wrap=True)
    console.print(render(waterfall, console.width, plain=not console.encoding.startswith("utf")))
    console.print(_summary(waterfall), soft_wrap=True, style="dim")
    if waterfall.state == AWAITING_APPROVAL:
        console.print(f"the plan awaits approval: hugginggpt approve {waterfall.run_id}", soft_wrap=True)


def _past_events(client: HuggingGPT, run: Run) -> Iterator[Any]:
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
    state = waterfall.state.replace("_", " ")
    return one_line(f"{waterfall.run_id}  {state}  {waterfall.seconds:.2f} s{trace}")


def _summary(waterfall: Waterfall) -> str:
    work, waits = _times(waterfall)
    usage = waterfall.usage
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
        "run_id": waterfall.run_id,
        "trace_id": waterfall.trace_id or None,
        "state": waterfall.state,
        "began": waterfall.start_time.isoformat() if waterfall.start_time else None,
        "seconds": waterfall.seconds,
        "work_seconds": round(work, _DIGITS),
        "waited_seconds": round(waits, _DIGITS),
        "usage": waterfall.usage,
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

"""Display of a batch on the command line: progress lines, bar and summary."""

import io
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gateway.cli.batch import report
from gateway.cli.batch.follow import FollowedBatch
from gateway.cli.batch.live_view import BarView, LineView
from gateway.cli.batch.output import Folder
from gateway.client import Batch, BatchResult, BatchSummary


def batch(completed: int, total: int = 100, **more: Any) -> Batch:
    counts = {"total": total, "completed": completed, "waiting": total - completed}
    return Batch.model_validate({"batch_id": "batch_1", "state": "running", "counts": counts, **more})


def test_lines_are_printed_per_tenth_and_wait_reason() -> None:
    output = io.StringIO()
    view = LineView(Console(file=output))
    view.busy("")
    for done in (0, 4, 10, 15, 19):
        view.show(batch(done, items_per_second=2.0, remaining=45.0))
    for _ in range(2):
        view.show(batch(19, waiting_for="no expert offers \x1b[31mtask"))
    view.show(batch(100))
    assert output.getvalue().splitlines() == [
        "10 of 100, 2 items/s, 0:00:45 left",
        "19 of 100, waiting: no expert offers [31mtask",
        "100 of 100",
    ]


def test_bar_shows_rate_and_remaining_time() -> None:
    output = io.StringIO()
    view = BarView(Console(file=output, force_terminal=True, width=100))
    view.busy("Starting local services…")
    view.sent(3, 100)
    view.started("batch_1: 100 items")
    view.show(batch(40, items_per_second=2.0, remaining=3725.0))
    view.close()
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", output.getvalue())
    assert "batch_1: 100 items\n" in shown
    assert "40/100 2 items/s, 1:02:05 left" in shown


def test_summary_shows_counts_durations_and_frequent_errors(capsys: pytest.CaptureFixture[str]) -> None:
    errors = [
        {"reason": "FILE", "message": "cannot read …", "count": 7, "names": ["a", "b", "c"]},
        *({"reason": "INVALID", "message": f"error {number}", "count": 1, "names": ["x"]} for number in range(12)),
    ]
    summary = {
        "batch_id": "batch_1",
        "state": "incomplete",
        "counts": {"total": 30, "completed": 11, "failed": 19},
        "seconds": {"total": 9.0, "median": 0.25, "p95": 1.5},
        "slowest": [{"index": at, "name": f"{at}.png", "seconds": 2.0} for at in range(1, 6)],
        "errors": errors,
    }
    over = Batch.model_validate({"batch_id": "batch_1", "state": "incomplete"})
    ended = FollowedBatch(
        over, BatchSummary.model_validate(summary), Folder(Path("out")), seconds=12.34, can_retry=True
    )
    report.print_summary(ended, as_json=False)
    captured = capsys.readouterr()
    output = captured.out.splitlines()
    assert output[:3] == [
        "batch_1 incomplete in 12.3 s: 30 items: 11 completed, 19 failed",
        "  0.25 s per item, 1.50 s at the 95th percentile; slowest 1.png 2.00 s, 2.png 2.00 s, 3.png 2.00 s",
        "  7 × cannot read …  (a, b, c, …)",
    ]
    assert output[-2:] == [
        "  and 3 more kinds of error: see summary.json",
        "saved out/: results.jsonl, results.csv, summary.json",
    ]
    assert captured.err == "retry the failed items: hugginggpt resume batch_1 --failed --out out\n"
    assert ended.status == 1
    assert ended.report()["saved"][0] == "out/results.jsonl"


def test_items_that_cannot_succeed_are_not_offered_for_retry(capsys: pytest.CaptureFixture[str]) -> None:
    over = Batch.model_validate({"batch_id": "batch_1", "state": "failed"})
    summary = BatchSummary.model_validate({"batch_id": "batch_1", "counts": {"total": 2, "failed": 2}})
    report.print_summary(FollowedBatch(over, summary, Folder(Path("out"))), as_json=False)
    assert capsys.readouterr().err == (
        "the failed items cannot succeed as sent: fix their inputs,"
        " and start a batch with them: hugginggpt batch --help\n"
    )


def test_small_batch_has_a_line_per_item(capsys: pytest.CaptureFixture[str]) -> None:
    results = [
        {"index": 1, "name": "sign.png", "state": "completed", "seconds": 0.5, "outputs": {"text": "Two\nwords"}},
        {"index": 2, "name": "bad.png", "state": "failed", "error": {"message": "bad.png is damaged\x1b[2J"}},
    ]
    over = Batch.model_validate({"batch_id": "batch_1", "state": "incomplete"})
    summary = BatchSummary.model_validate({"batch_id": "batch_1", "state": "incomplete", "counts": {"total": 2}})
    report.print_summary(
        FollowedBatch(over, summary, None, [BatchResult.model_validate(each) for each in results]), as_json=False
    )
    assert capsys.readouterr().out.splitlines()[:2] == [
        "  1 sign.png   0.50 s  Two words",
        "  2 bad.png    0.00 s  bad.png is damaged[2J",
    ]


def test_item_texts_stay_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    forged = "a\nbatch_1 completed\u2028b\r\u202egnp.exe\u200b\x1b[2J"
    failure = {"reason": "INVALID", "message": f"of {forged}", "remedy": forged}
    summary = {
        "batch_id": "batch_1",
        "slowest": [{"index": 1, "name": forged, "seconds": 2.0}],
        "errors": [{"reason": "INVALID", "message": forged, "count": 1, "names": [forged]}],
    }
    over = Batch.model_validate({"batch_id": "batch_1", "state": "failed", "failure": failure})
    report.print_summary(FollowedBatch(over, BatchSummary.model_validate(summary)), as_json=False)
    captured = capsys.readouterr()
    shown = "a batch_1 completed b gnp.exe[2J"
    assert captured.out.splitlines()[1:] == [
        f"  0.00 s per item, 0.00 s at the 95th percentile; slowest {shown} 2.00 s",
        f"  1 × {shown}  ({shown})",
    ]
    assert captured.err.splitlines() == [f"error: of {shown}", f"  {shown}"]

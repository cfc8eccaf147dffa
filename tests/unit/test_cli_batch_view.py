"""What a person sees of a batch: lines, a bar, and how it ended."""

import io
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gateway.cli.batch import report
from gateway.cli.batch.finish import Ended
from gateway.cli.batch.live_view import Bar, Lines
from gateway.cli.batch.output_folder import Folder
from gateway.client import Batch, BatchResult, BatchSummary


def batch(completed: int, total: int = 100, **more: Any) -> Batch:
    counts = {"total": total, "completed": completed, "waiting": total - completed}
    return Batch.model_validate({"batch_id": "batch_1", "state": "running", "counts": counts, **more})


def test_lines_come_with_each_tenth_and_with_what_is_waited_for() -> None:
    told = io.StringIO()
    view = Lines(Console(file=told))
    view.busy("")
    for done in (0, 4, 10, 15, 19):
        view.show(batch(done, items_per_second=2.0, remaining=45.0))
    for _ in range(2):
        view.show(batch(19, waiting_for="nobody offers \x1b[31mtask"))
    view.show(batch(100))
    assert told.getvalue().splitlines() == [
        "10 of 100, 2 per second, 0:00:45 left",
        "19 of 100, waiting: nobody offers [31mtask",
        "100 of 100",
    ]


def test_a_bar_has_rate_and_remaining_time() -> None:
    told = io.StringIO()
    view = Bar(Console(file=told, force_terminal=True, width=100))
    view.busy("starting the house")
    view.sent(3, 100)
    view.begun("batch_1: 100 items")
    view.show(batch(40, items_per_second=2.0, remaining=3725.0))
    view.close()
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", told.getvalue())
    assert "batch_1: 100 items\n" in shown
    assert "40/100 2 per second, 1:02:05 left" in shown


def test_an_end_tells_counts_times_and_the_most_frequent_errors(capsys: pytest.CaptureFixture[str]) -> None:
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
    ended = Ended(over, BatchSummary.model_validate(summary), Folder(Path("out")), seconds=12.34, again=True)
    report.tell(ended, as_json=False)
    captured = capsys.readouterr()
    told = captured.out.splitlines()
    assert told[:3] == [
        "batch_1 incomplete in 12.3 s: 30 items: 11 completed, 19 failed",
        "  0.25 s an item, 1.50 s at the 95th percentile; slowest 1.png 2.00 s, 2.png 2.00 s, 3.png 2.00 s",
        "  7 × cannot read …  (a, b, c, …)",
    ]
    assert told[-2:] == [
        "  and 3 more kinds of error: see summary.json",
        "saved out/: results.jsonl, results.csv, summary.json",
    ]
    assert captured.err == "again the failed only: hugginggpt resume batch_1 --failed --out out\n"
    assert (ended.status, ended.report()["saved"][0]) == (1, "out/results.jsonl")


def test_items_that_fail_before_they_run_are_not_to_be_run_again(capsys: pytest.CaptureFixture[str]) -> None:
    over = Batch.model_validate({"batch_id": "batch_1", "state": "failed"})
    summary = BatchSummary.model_validate({"batch_id": "batch_1", "counts": {"total": 2, "failed": 2}})
    report.tell(Ended(over, summary, Folder(Path("out"))), as_json=False)
    assert capsys.readouterr().err == (
        "none of the failed can run as it was sent: mend their inputs,"
        " and start a batch with these: hugginggpt batch --help\n"
    )


def test_each_of_few_items_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    results = [
        {"index": 1, "name": "sign.png", "state": "completed", "seconds": 0.5, "outputs": {"text": "Two\nwords"}},
        {"index": 2, "name": "bad.png", "state": "failed", "error": {"message": "bad.png is damaged\x1b[2J"}},
    ]
    over = Batch.model_validate({"batch_id": "batch_1", "state": "incomplete"})
    summary = BatchSummary.model_validate({"batch_id": "batch_1", "state": "incomplete", "counts": {"total": 2}})
    report.tell(Ended(over, summary, None, [BatchResult.model_validate(each) for each in results]), as_json=False)
    assert capsys.readouterr().out.splitlines()[:2] == [
        "  1 sign.png   0.50 s  Two words",
        "  2 bad.png    0.00 s  bad.png is damaged[2J",
    ]


def test_what_items_are_called_and_say_stays_on_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    forged = "a\nbatch_1 completed\u2028b\r\u202egnp.exe\u200b\x1b[2J"
    failure = {"reason": "INVALID", "message": f"of {forged}", "remedy": forged}
    summary = {
        "batch_id": "batch_1",
        "slowest": [{"index": 1, "name": forged, "seconds": 2.0}],
        "errors": [{"reason": "INVALID", "message": forged, "count": 1, "names": [forged]}],
    }
    over = Batch.model_validate({"batch_id": "batch_1", "state": "failed", "failure": failure})
    report.tell(Ended(over, BatchSummary.model_validate(summary)), as_json=False)
    captured = capsys.readouterr()
    shown = "a batch_1 completed b gnp.exe[2J"
    assert captured.out.splitlines()[1:] == [
        f"  0.00 s an item, 0.00 s at the 95th percentile; slowest {shown} 2.00 s",
        f"  1 × {shown}  ({shown})",
    ]
    assert captured.err.splitlines() == [f"error: of {shown}", f"  {shown}"]

"""A batch is followed to its end, and its results are saved."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from gateway.cli.batch import results
from gateway.cli.batch.live_view import View
from gateway.cli.batch.output_folder import LINES, SUMMARY, TABLE, Folder
from gateway.cli.batch.results import Files
from gateway.cli.errors import INTERRUPTED, Problem
from gateway.client import Batch, BatchResult, BatchSummary, HuggingGPT, Unreachable
from gateway.client.models import COMPLETED

FEW = 25
"""Items of which each is told on a line of its own."""


@dataclass(frozen=True)
class Ended:
    """A batch that is over.

    Args:
        batch: as it stands then.
        summary: what there is to say about all items.
        folder: where its results are; None: they were not wanted.
        results: of each item, where they are few.
        again: some of those that failed may do better if they run again.
        seconds: for which it was followed; None: it was not.
        interrupted: it was cancelled by Ctrl-C.
    """

    batch: Batch
    summary: BatchSummary
    folder: Folder | None = None
    results: Sequence[BatchResult] = ()
    again: bool = False
    seconds: float | None = None
    interrupted: bool = False

    @property
    def status(self) -> int:
        """What a command exits with."""
        if self.interrupted:
            return INTERRUPTED
        return 0 if self.batch.state == COMPLETED else 1

    def report(self) -> dict[str, Any]:
        """What --json prints."""
        told = self.summary.model_dump(mode="json")
        if self.folder:
            told["saved"] = [str(self.folder.path / name) for name in (LINES, TABLE, SUMMARY)]
        return told | ({"error": self.batch.failure.model_dump(mode="json")} if self.batch.failure else {})


def finish(house: HuggingGPT, batch_id: str, folder: Folder, view: View) -> Ended:
    """Follows a batch to its end while what its items make is saved, then writes the results.

    Ctrl-C cancels the batch and has what there is written; the second time it is left alone.

    Raises:
        Problem: something cannot be written, and the batch goes on; or its gateway is gone.
    """
    files = Files(house, batch_id, folder)
    begun, interrupted = time.monotonic(), False
    with _losing(folder):
        try:
            batch = _followed(house, batch_id, view, files.go_on)
        except KeyboardInterrupt:
            view.busy("cancelling")
            interrupted = True
            house.cancel_batch(batch_id)
            batch = _followed(house, batch_id, view, files.go_on)
        saved = _saved(house, batch, files, folder)
    return replace(saved, seconds=time.monotonic() - begun, interrupted=interrupted)


def save(house: HuggingGPT, batch_id: str, folder: Folder) -> Ended:
    """Writes the results of a batch as it stands.

    Raises:
        Problem: something cannot be written.
    """
    return _saved(house, house.batch(batch_id), Files(house, batch_id, folder), folder)


@contextmanager
def _losing(folder: Folder) -> Iterator[None]:
    """Says what to do when the gateway is gone."""
    try:
        yield
    except Unreachable as error:
        remedy = f"nothing goes on until a gateway is there again: hugginggpt up, then {folder.going_on}"
        raise Problem(error.message, remedy=remedy) from error


def _saved(house: HuggingGPT, batch: Batch, files: Files, folder: Folder) -> Ended:
    files.go_on(to_the_end=True)
    outputs = [port.name for port in batch.pipeline.outputs] if batch.pipeline else []
    few = list(house.batch_results(batch.batch_id)) if batch.counts.total <= FEW else []
    results.write(few or house.batch_results(batch.batch_id), outputs, folder)
    summary = house.batch_summary(batch.batch_id)
    folder.write_summary(summary.model_dump(mode="json"))
    return Ended(batch, summary, folder, few, again=_again(house, batch))


def watch(house: HuggingGPT, batch_id: str, view: View) -> Ended:
    """Follows a batch to its end, and leaves it alone whatever happens here."""
    batch = _followed(house, batch_id, view, lambda: None)
    return Ended(batch, house.batch_summary(batch_id), again=_again(house, batch))


def _again(house: HuggingGPT, batch: Batch) -> bool:
    """Whether one of the failed was a run: what was refused before will be refused again."""
    failed = ("failed", "incomplete")
    if not any(getattr(batch.counts, state) for state in failed):
        return False
    return any(result.run_id for result in house.batch_results(batch.batch_id, states=failed))


def _followed(house: HuggingGPT, batch_id: str, view: View, on_change: Callable[[], None]) -> Batch:
    for batch in house.watch_batch(batch_id):
        view.show(batch)
        on_change()
    return house.batch(batch_id)

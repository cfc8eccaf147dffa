"""Follows a batch to its end and saves its results."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from gateway.cli.batch.live_view import View
from gateway.cli.batch.output import LINES, SUMMARY, TABLE, Folder, OutputFiles, write_results
from gateway.cli.errors import INTERRUPTED, Problem
from gateway.client import Batch, BatchResult, BatchSummary, HuggingGPT, Unreachable
from gateway.client.models import COMPLETED

LISTED_ITEMS = 25
"""Batch size up to which every item is printed on a line of its own."""


@dataclass(frozen=True)
class FollowedBatch:
    """A batch that has ended, with its results.

    Args:
        batch: final state of the batch.
        summary: statistics of all items.
        folder: folder of the results; None if they were not saved.
        results: results of all items, of a small batch.
        can_retry: whether a failed item may succeed if it runs again.
        seconds: time for which the batch was followed; None if it was not.
        is_interrupted: whether Ctrl-C cancelled it.
    """

    batch: Batch
    summary: BatchSummary
    folder: Folder | None = None
    results: Sequence[BatchResult] = ()
    can_retry: bool = False
    seconds: float | None = None
    is_interrupted: bool = False

    @property
    def status(self) -> int:
        """Exit status of the command."""
        if self.is_interrupted:
            return INTERRUPTED
        return 0 if self.batch.state == COMPLETED else 1

    def report(self) -> dict[str, Any]:
        """The output of --json."""
        content = self.summary.model_dump(mode="json")
        if self.folder:
            content["saved"] = [str(self.folder.path / name) for name in (LINES, TABLE, SUMMARY)]
        return content | ({"error": self.batch.failure.model_dump(mode="json")} if self.batch.failure else {})


def finish(client: HuggingGPT, batch_id: str, folder: Folder, view: View) -> FollowedBatch:
    """Follows a batch to its end, saves the files of its items meanwhile, and then writes the results.

    Ctrl-C cancels the batch and writes the results so far; a second Ctrl-C exits at once.

    Raises:
        Problem: a file cannot be written while the batch continues, or the gateway is unreachable.
    """
    files = OutputFiles(client, batch_id, folder)
    started, is_interrupted = time.monotonic(), False
    with _explaining_disconnects(folder):
        try:
            batch = _follow(client, batch_id, view, files.save_available)
        except KeyboardInterrupt:
            view.busy("cancelling")
            is_interrupted = True
            client.cancel_batch(batch_id)
            batch = _follow(client, batch_id, view, files.save_available)
        saved = _saved(client, batch, files, folder)
    return replace(saved, seconds=time.monotonic() - started, is_interrupted=is_interrupted)


def save(client: HuggingGPT, batch_id: str, folder: Folder) -> FollowedBatch:
    """Writes the present results of a batch.

    Raises:
        Problem: a file cannot be written.
    """
    return _saved(client, client.batch(batch_id), OutputFiles(client, batch_id, folder), folder)


@contextmanager
def _explaining_disconnects(folder: Folder) -> Iterator[None]:
    """Adds the remedy to errors of an unreachable gateway."""
    try:
        yield
    except Unreachable as error:
        remedy = f"start the gateway with hugginggpt up, then: {folder.resume_hint}"
        raise Problem(error.message, remedy=remedy) from error


def _saved(client: HuggingGPT, batch: Batch, files: OutputFiles, folder: Folder) -> FollowedBatch:
    outputs = [port.name for port in batch.pipeline.outputs] if batch.pipeline else []
    results_ = list(client.batch_results(batch.batch_id)) if batch.counts.total <= LISTED_ITEMS else []
    write_results(files.saving(results_ or client.batch_results(batch.batch_id)), outputs, folder)
    summary = client.batch_summary(batch.batch_id)
    folder.write_summary(summary.model_dump(mode="json"))
    return FollowedBatch(batch, summary, folder, results_, can_retry=_can_retry(client, batch))


def watch(client: HuggingGPT, batch_id: str, view: View) -> FollowedBatch:
    """Follows a batch to its end; Ctrl-C does not cancel it."""
    batch = _follow(client, batch_id, view, lambda _: None)
    return FollowedBatch(batch, client.batch_summary(batch_id), can_retry=_can_retry(client, batch))


def _can_retry(client: HuggingGPT, batch: Batch) -> bool:
    """Whether a failed item was run: items that were refused before would be refused again."""
    failed = ("failed", "incomplete")
    if not any(getattr(batch.counts, state) for state in failed):
        return False
    return any(result.run_id for result in client.batch_results(batch.batch_id, states=failed))


def _follow(client: HuggingGPT, batch_id: str, view: View, on_change: Callable[[Batch], None]) -> Batch:
    for batch in client.watch_batch(batch_id):
        view.show(batch)
        on_change(batch)
    return client.batch(batch_id)

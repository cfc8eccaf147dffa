"""Pipelines and batches of the synchronous client."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Unpack

from gateway.client.attachments import Attachment
from gateway.client.calls import UPLOAD_RETENTION_SECONDS, upload
from gateway.client.models import Artifact, Page, Port
from gateway.client.options import DataPolicy
from gateway.client.pipelines import calls
from gateway.client.pipelines.items import Item, ItemWriter, JsonLinesBody
from gateway.client.pipelines.models import Batch, BatchItem, BatchResult, BatchSummary, Pipeline
from gateway.client.pipelines.options import BatchOptions, Plan, batch_spec
from gateway.client.pipelines.streams import BatchFollower, ResultsReader
from gateway.client.transport import Transport


class PipelineMethods(Transport):
    """Methods for pipelines and batches."""

    def save_pipeline(
        self,
        name: str,
        source: Plan | str,
        *,
        description: str = "",
        pin_models: bool = False,
        policy: DataPolicy | None = None,
        inputs: Sequence[Port] = (),
    ) -> Pipeline:
        """Saves a plan as the next version of a pipeline; returns the latest version if it is the same.

        Args:
            name: lower-case letters, digits, dots, dashes and underscores, starting with a letter.
            source: an ended run or its id, whose inputs become parameters; or a plan, as printed by ask --json.
            description: description of the pipeline.
            pin_models: whether its tasks only run on the models that ran them, or that would run them now.
            policy: data policy; local: its data never leaves the deployment.
            inputs: descriptions of its parameters; a given modality must match.
        """
        options = {"description": description, "pin_models": pin_models, "policy": policy}
        return self._do(calls.save_pipeline(name, source, options, inputs))

    def pipelines(self, *, page_size: int = 0, page_token: str = "") -> Page[Pipeline]:
        """Lists the latest version of each pipeline, by name."""
        return self._do(calls.pipelines(page_size, page_token))

    def pipeline_versions(self, name: str, *, page_size: int = 0, page_token: str = "") -> Page[Pipeline]:
        """Lists the versions of a pipeline, latest first."""
        return self._do(calls.versions(name, page_size, page_token))

    def pipeline(self, name: str, version: int = 0) -> Pipeline:
        """Returns a version of a pipeline; 0 for the latest."""
        return self._do(calls.pipeline(name, version))

    def delete_pipeline(self, name: str, version: int = 0) -> None:
        """Deletes a version of a pipeline; 0 for all versions. Active batches continue."""
        self._do(calls.delete_pipeline(name, version))

    def start_batch(
        self, items: Iterable[Item], on_ready: Callable[[int], None] | None = None, **options: Unpack[BatchOptions]
    ) -> Batch:
        """Starts a batch without waiting for it. Uploads its files first, concurrently, each once.

        An item whose file cannot be sent fails; the others run.

        Args:
            items: the inputs, of any number.
            on_ready: called with the number of items whose files are uploaded.
            options: the plan and further options.
        """
        writer = ItemWriter(self._uploaded, on_ready)
        with closing(JsonLinesBody(writer.lines(batch_spec(options), items))) as body:
            return self._do(calls.start_batch(body, options.get("idempotency_key", "")))

    def batches(self, *, states: Sequence[str] = (), page_size: int = 0, page_token: str = "") -> Page[Batch]:
        """Lists batches, newest first, without plan, rate and remaining time."""
        return self._do(calls.batches(states, page_size, page_token))

    def batch(self, batch_id: str) -> Batch:
        """Returns the present state of a batch."""
        return self._do(calls.batch(batch_id))

    def batch_items(self, batch_id: str, *, after: int = 0, states: Sequence[str] = ()) -> Iterator[BatchItem]:
        """Yields the items after an index with their present state, in the order of the input."""
        token, more = "", True
        while more:
            page = self._do(calls.items(batch_id, after, states, token))
            yield from page.items
            token = page.next
            more = bool(token)

    def batch_results(self, batch_id: str, *, states: Sequence[str] = ()) -> Iterator[BatchResult]:
        """Yields the results of all items, or of those in these states, in the order of the input."""
        yield from self._follow(ResultsReader(self.url, batch_id, states))

    def batch_summary(self, batch_id: str) -> BatchSummary:
        """Returns counts, durations, the slowest items, and errors by kind."""
        return self._do(calls.batch_summary(batch_id))

    def watch_batch(self, batch_id: str) -> Iterator[Batch]:
        """Yields the state of a batch whenever it changes, up to its end, with reconnects.

        Only the first state of a connection contains the plan.
        """
        yield from self._follow(BatchFollower(self.url, batch_id))

    def wait_batch(self, batch_id: str) -> Batch:
        """Waits until a batch has ended; returns it."""
        for _ in self.watch_batch(batch_id):
            pass
        return self.batch(batch_id)

    def cancel_batch(self, batch_id: str) -> None:
        """Cancels a batch: active items are cancelled, and no new item starts."""
        self._do(calls.cancel_batch(batch_id))

    def resume_batch(self, batch_id: str, *, failed_only: bool = False) -> Batch:
        """Runs the items that have not started or were cancelled; with failed_only, only the failed ones."""
        return self._do(calls.resume_batch(batch_id, failed_only=failed_only))

    def delete_batch(self, batch_id: str) -> None:
        """Deletes an ended batch with its items and their runs."""
        self._do(calls.delete_batch(batch_id))

    def _uploaded(self, file: Attachment) -> Artifact:
        return self._do(upload(file, "user_data", UPLOAD_RETENTION_SECONDS, None)).artifact

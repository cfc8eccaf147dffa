"""Pipelines and batches, for programs on asyncio."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing, closing
from typing import Unpack

from gateway.client.attachments import Attachment
from gateway.client.calls import HELD_SECONDS, upload
from gateway.client.models import Artifact, Page, Port
from gateway.client.options import DataPolicy
from gateway.client.pipelines import calls
from gateway.client.pipelines.items import Item, Lines, Writing
from gateway.client.pipelines.models import Batch, BatchItem, BatchResult, BatchSummary, Pipeline
from gateway.client.pipelines.options import BatchOptions, Plan, batch_spec
from gateway.client.pipelines.streams import Results, Watching
from gateway.client.transport import AsyncWire


class AsyncKeeping(AsyncWire):
    """What is kept at a gateway to be run again, and run on many inputs."""

    async def save_pipeline(
        self,
        name: str,
        kept: Plan | str,
        *,
        description: str = "",
        pin_models: bool = False,
        policy: DataPolicy | None = None,
        inputs: Sequence[Port] = (),
    ) -> Pipeline:
        """Keeps a plan under a name, as its next version; if the latest is the same, that one.

        Args:
            name: lower-case letters, digits, dots, dashes and underscores, a letter first.
            kept: a run that has ended or its id, whose inputs become parameters; or a plan, as ask --json prints it.
            description: what it is for.
            pin_models: its tasks only run on the models that ran them, or would run a given plan now.
            policy: local: what runs through it never leaves the house.
            inputs: what there is to say about its parameters; one that names a modality must be right.
        """
        said = {"description": description, "pin_models": pin_models, "policy": policy}
        return await self._do(calls.save_pipeline(name, kept, said, inputs))

    async def pipelines(self, *, page_size: int = 0, page_token: str = "") -> Page[Pipeline]:
        """The latest version of each pipeline, by name."""
        return await self._do(calls.pipelines(page_size, page_token))

    async def pipeline_versions(self, name: str, *, page_size: int = 0, page_token: str = "") -> Page[Pipeline]:
        """The versions of a pipeline, the latest first."""
        return await self._do(calls.versions(name, page_size, page_token))

    async def pipeline(self, name: str, version: int = 0) -> Pipeline:
        """A version of a pipeline; the latest for 0."""
        return await self._do(calls.pipeline(name, version))

    async def delete_pipeline(self, name: str, version: int = 0) -> None:
        """Removes a version of a pipeline; all of them for 0. Batches that have begun go on."""
        await self._do(calls.delete_pipeline(name, version))

    async def start_batch(
        self, items: Iterable[Item], on_ready: Callable[[int], None] | None = None, **options: Unpack[BatchOptions]
    ) -> Batch:
        """Starts a batch and does not wait for it. Its files are sent first, several at once, each once.

        An item with a file that cannot be sent fails by itself.

        Args:
            items: what to run it on; may be as many as one likes. They are read on a thread.
            on_ready: told on that thread of how many items are ready, as their files have been sent.
            options: what to run, and what else there is to say.
        """
        loop = asyncio.get_running_loop()
        writing = Writing(lambda file: asyncio.run_coroutine_threadsafe(self._held(file), loop).result(), on_ready)
        try:
            body = await asyncio.to_thread(Lines, writing.lines(batch_spec(options), items))
        finally:
            writing.stop()
        with closing(body):
            return await self._do(calls.start_batch(body, options.get("idempotency_key", "")))

    async def batches(self, *, states: Sequence[str] = (), page_size: int = 0, page_token: str = "") -> Page[Batch]:
        """Batches, newest first, without their plans, rate and remaining time."""
        return await self._do(calls.batches(states, page_size, page_token))

    async def batch(self, batch_id: str) -> Batch:
        """A batch as it stands."""
        return await self._do(calls.batch(batch_id))

    async def batch_items(
        self, batch_id: str, *, after: int = 0, states: Sequence[str] = ()
    ) -> AsyncGenerator[BatchItem, None]:
        """All items behind an index, in the order of the input, as they stand."""
        token, more = "", True
        while more:
            page = await self._do(calls.items(batch_id, after, states, token))
            for item in page.items:
                yield item
            token = page.next
            more = bool(token)

    async def batch_results(self, batch_id: str, *, states: Sequence[str] = ()) -> AsyncGenerator[BatchResult, None]:
        """What became of each item, or of those in these states, in the order of the input."""
        async with aclosing(self._followed(Results(self.url, batch_id, states))) as results:
            async for result in results:
                yield result

    async def batch_summary(self, batch_id: str) -> BatchSummary:
        """Counts, times, the slowest items, and errors by their kind."""
        return await self._do(calls.batch_summary(batch_id))

    async def watch_batch(self, batch_id: str) -> AsyncGenerator[Batch, None]:
        """A batch as it stands, whenever that has changed, to its end, over as many connections as it takes.

        The plan of its pipeline is told once a connection.
        """
        async with aclosing(self._followed(Watching(self.url, batch_id))) as shown:
            async for batch in shown:
                yield batch

    async def wait_batch(self, batch_id: str) -> Batch:
        """Waits until a batch has ended."""
        async for _ in self.watch_batch(batch_id):
            pass
        return await self.batch(batch_id)

    async def cancel_batch(self, batch_id: str) -> None:
        """Asks a batch to stop: items under way are cancelled, no new one begins."""
        await self._do(calls.cancel_batch(batch_id))

    async def resume_batch(self, batch_id: str, *, failed_only: bool = False) -> Batch:
        """Runs the items that have not begun or were cancelled, or only those that have failed, again."""
        return await self._do(calls.resume_batch(batch_id, failed_only=failed_only))

    async def delete_batch(self, batch_id: str) -> None:
        """Removes an ended batch with its items and their runs."""
        await self._do(calls.delete_batch(batch_id))

    async def _held(self, file: Attachment) -> Artifact:
        return (await self._do(upload(file, "user_data", HELD_SECONDS, None))).artifact

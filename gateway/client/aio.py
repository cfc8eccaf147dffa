"""The asyncio client: the same methods as coroutines."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing, closing
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, Unpack

import httpx

from gateway.client import calls
from gateway.client.attachments import Attachment, FileId, Part, Source, attachments_in_form, parts
from gateway.client.batch_items import Item, ItemWriter, JsonLinesBody
from gateway.client.calls import Call, upload_many
from gateway.client.connection import RetryPolicy
from gateway.client.downloads import Download, find_target
from gateway.client.errors import InvalidRequest, Refused
from gateway.client.models import (
    Artifact,
    Batch,
    BatchItem,
    BatchResult,
    BatchSummary,
    Conversation,
    Event,
    Model,
    Page,
    Pipeline,
    Port,
    Run,
    StoredFile,
    TaskKind,
)
from gateway.client.options import BatchOptions, DataPolicy, Options, Plan, batch_spec, part_or_value, spec
from gateway.client.request_body import CHUNK_BYTES
from gateway.client.streams import BatchFollower, ResultsReader, RunFollower, is_settled, may_wait
from gateway.client.transport import AsyncTransport


class AsyncPipelineMethods(AsyncTransport):
    """Methods for pipelines and batches."""

    async def save_pipeline(
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
        return await self._do(calls.save_pipeline(name, source, options, inputs))

    async def pipelines(self, *, page_size: int = 0, page_token: str = "") -> Page[Pipeline]:
        """Lists the latest version of each pipeline, by name."""
        return await self._do(calls.pipelines(page_size, page_token))

    async def pipeline_versions(self, name: str, *, page_size: int = 0, page_token: str = "") -> Page[Pipeline]:
        """Lists the versions of a pipeline, latest first."""
        return await self._do(calls.versions(name, page_size, page_token))

    async def pipeline(self, name: str, version: int = 0) -> Pipeline:
        """Returns a version of a pipeline; 0 for the latest."""
        return await self._do(calls.pipeline(name, version))

    async def delete_pipeline(self, name: str, version: int = 0) -> None:
        """Deletes a version of a pipeline; 0 for all versions. Active batches continue."""
        await self._do(calls.delete_pipeline(name, version))

    async def start_batch(
        self, items: Iterable[Item], on_ready: Callable[[int], None] | None = None, **options: Unpack[BatchOptions]
    ) -> Batch:
        """Starts a batch without waiting for it. Uploads its files first, concurrently, each once.

        An item whose file cannot be sent fails; the others run.

        Args:
            items: the inputs, of any number, read on a thread.
            on_ready: called on that thread with the number of items whose files are uploaded.
            options: the plan and further options.
        """
        loop = asyncio.get_running_loop()
        writer = ItemWriter(
            lambda files: asyncio.run_coroutine_threadsafe(self._do(upload_many(files, None)), loop).result(), on_ready
        )
        try:
            body = await asyncio.to_thread(JsonLinesBody, writer.lines(batch_spec(options), items))
        finally:
            writer.stop()
        with closing(body):
            return await self._do(calls.start_batch(body, options.get("idempotency_key", "")))

    async def batches(self, *, states: Sequence[str] = (), page_size: int = 0, page_token: str = "") -> Page[Batch]:
        """Lists batches, newest first, without plan, rate and remaining time."""
        return await self._do(calls.batches(states, page_size, page_token))

    async def batch(self, batch_id: str) -> Batch:
        """Returns the present state of a batch."""
        return await self._do(calls.batch(batch_id))

    async def batch_items(
        self, batch_id: str, *, after: int = 0, states: Sequence[str] = ()
    ) -> AsyncGenerator[BatchItem, None]:
        """Yields the items after an index with their present state, in the order of the input."""
        token, more = "", True
        while more:
            page = await self._do(calls.items(batch_id, after, states, token))
            for item in page.items:
                yield item
            token = page.next
            more = bool(token)

    async def batch_results(self, batch_id: str, *, states: Sequence[str] = ()) -> AsyncGenerator[BatchResult, None]:
        """Yields the results of all items, or of those in these states, in the order of the input."""
        async with aclosing(self._follow(ResultsReader(self.url, batch_id, states))) as results:
            async for result in results:
                yield result

    async def batch_summary(self, batch_id: str) -> BatchSummary:
        """Returns counts, durations, the slowest items, and errors by kind."""
        return await self._do(calls.batch_summary(batch_id))

    async def watch_batch(self, batch_id: str) -> AsyncGenerator[Batch, None]:
        """Yields the state of a batch whenever it changes, up to its end, with reconnects.

        Only the first state of a connection contains the plan.
        """
        async with aclosing(self._follow(BatchFollower(self.url, batch_id))) as shown:
            async for batch in shown:
                yield batch

    async def wait_batch(self, batch_id: str) -> Batch:
        """Waits until a batch has ended; returns it."""
        async for _ in self.watch_batch(batch_id):
            pass
        return await self.batch(batch_id)

    async def cancel_batch(self, batch_id: str) -> None:
        """Cancels a batch: active items are cancelled, and no new item starts."""
        await self._do(calls.cancel_batch(batch_id))

    async def resume_batch(self, batch_id: str, *, failed_only: bool = False) -> Batch:
        """Runs the items that have not started or were cancelled; with failed_only, only the failed ones."""
        return await self._do(calls.resume_batch(batch_id, failed_only=failed_only))

    async def delete_batch(self, batch_id: str) -> None:
        """Deletes an ended batch with its items and their runs."""
        await self._do(calls.delete_batch(batch_id))


class AsyncHuggingGPT(AsyncPipelineMethods):
    """Client of a gateway. Every method raises a HuggingGPTError with cause and remedy.

    Args:
        url: address of the gateway; default HUGGINGGPT_URL, then http://127.0.0.1:8080.
        api_key: API key; default HUGGINGGPT_API_KEY, then none.
        verify: TLS context; True for the certificates of certifi or SSL_CERT_FILE.
        on_sent: called during uploads with the bytes sent so far and in total.
    """

    async def ask(self, request: str = "", files: Sequence[Source] = (), **options: Unpack[Options]) -> Run:
        """Starts a run and waits until it has ended or awaits approval.

        Args:
            request: the request; optional with a plan.
            files: paths, bytes, URLs, ids of stored files, or artifacts of earlier runs.
            options: options of the run.
        """
        async with aclosing(self.stream(request, files, **options)) as events:
            return await self._wait_until_settled(events)

    async def stream(
        self, request: str = "", files: Sequence[Source] = (), **options: Unpack[Options]
    ) -> AsyncGenerator[Event, None]:
        """Starts a run and yields its events, each once, up to its end, with reconnects."""
        start = await self._start(request, files, options, streaming=True)
        async with aclosing(self._follow(RunFollower(self.url, start=start))) as events:
            async for event in events:
                yield event

    async def start(self, request: str = "", files: Sequence[Source] = (), **options: Unpack[Options]) -> Run:
        """Starts a run without waiting for it."""
        return await self._do(await self._start(request, files, options, streaming=False))

    async def watch(self, run_id: str, after: int = 0) -> AsyncGenerator[Event, None]:
        """Yields the events of a run after a number, each once, up to its end, with reconnects."""
        async with aclosing(self._follow(RunFollower(self.url, run_id, after))) as events:
            async for event in events:
                yield event

    async def wait(self, run_id: str) -> Run:
        """Waits until a run has ended or awaits approval."""
        async with aclosing(self.watch(run_id)) as events:
            return await self._wait_until_settled(events)

    async def get(self, run_id: str) -> Run:
        return await self._do(calls.run(run_id))

    async def runs(
        self, *, states: Sequence[str] = (), conversation_id: str = "", page_size: int = 0, page_token: str = ""
    ) -> Page[Run]:
        """Lists runs, newest first, without tasks and answers; page_size 0 is the gateway's default."""
        return await self._do(calls.runs(states, conversation_id, page_size, page_token))

    async def cancel(self, run_id: str) -> None:
        """Requests the cancellation of a run, which its last event confirms."""
        await self._do(calls.cancel(run_id))

    async def approve(self, run_id: str, plan: Plan | None = None) -> None:
        """Approves the plan of a run, or replaces it by this one."""
        await self._do(calls.approve(run_id, plan))

    async def verify(self, run_id: str) -> Any:
        """Repeats a run's deterministic tasks in a new run, which the result names."""
        return await self._do(calls.verify(run_id))

    async def delete(self, run_id: str) -> None:
        """Deletes an ended run."""
        await self._do(calls.delete(run_id))

    async def upload(
        self,
        source: str | PathLike[str] | bytes | Attachment,
        *,
        purpose: str = "user_data",
        expires_after: int | None = None,
    ) -> StoredFile:
        """Stores a file of any size, with constant memory.

        Args:
            source: path or bytes of the file.
            purpose: purpose of the file, as in OpenAI's API.
            expires_after: retention in seconds, from one hour to thirty days; None to keep it until it is deleted.
        """
        (part,) = parts([source])
        if not isinstance(part, Attachment):
            raise InvalidRequest(f"{source!r} is not a local file", code="FILE", remedy="give a path or bytes")
        return await self._do(calls.upload(part, purpose, expires_after, self._on_sent))

    async def file(self, file_id: str) -> StoredFile:
        return await self._do(calls.file(file_id))

    async def files(self, *, after: str = "", limit: int = 0) -> Page[StoredFile]:
        """Lists stored files, newest first."""
        return await self._do(calls.files(after, limit))

    async def delete_file(self, file_id: str) -> None:
        await self._do(calls.delete_file(file_id))

    async def artifact(self, sha256: str) -> Artifact:
        """Returns the metadata of an artifact."""
        return await self._do(calls.artifact(sha256))

    async def read(self, artifact: Artifact) -> bytes:
        """Downloads an artifact and verifies its digest."""
        content = BytesIO()
        await self.copy(artifact, content)
        return content.getvalue()

    async def copy(self, artifact: Artifact, file: BinaryIO) -> None:
        """Downloads an artifact into a file; if Damaged is raised, discard the content."""
        await self._receive(Download(artifact, file), artifact)

    async def save(self, source: Run | StoredFile | Artifact, folder: str | PathLike[str] = ".") -> list[Path]:
        """Saves the artifacts of a run, or a file, to a folder, with safe names and without overwriting other files."""
        return [await self._saved(artifact, Path(folder)) for artifact in calls.artifacts(source)]

    async def conversations(self, *, page_size: int = 0, page_token: str = "") -> Page[Conversation]:
        """Lists conversations, newest first, without their runs."""
        return await self._do(calls.conversations(page_size, page_token))

    async def conversation(self, conversation_id: str) -> Conversation:
        return await self._do(calls.conversation(conversation_id))

    async def delete_conversation(self, conversation_id: str) -> None:
        """Deletes all runs of a conversation."""
        await self._do(calls.delete_conversation(conversation_id))

    async def tasks(self) -> list[TaskKind]:
        """Lists the available tasks."""
        return await self._do(calls.tasks())

    async def models(self, task: str = "") -> list[Model]:
        """Lists the available models, of all tasks or of one."""
        return await self._do(calls.models(task))

    async def forget(self, expert: str) -> None:
        """Removes an expert that is dormant or was added."""
        await self._do(calls.forget(expert))

    async def fetch(self, path: str) -> Any:
        """Fetches the JSON at a path, such as /v1/experts."""
        return await self._do(calls.fetch(path))

    async def _start(self, request: str, files: Sequence[Source], options: Options, *, streaming: bool) -> Call[Run]:
        run_spec, found = spec(request, options), parts(files)
        named = options.get("inputs", {})
        inputs = [{"name": name, **await self._entry(part_or_value(value, name))} for name, value in named.items()]
        attached = attachments_in_form(found)
        if attached is None:
            inputs += [await self._entry(part) for part in found]
        if inputs:
            run_spec["inputs"] = inputs
        key = options.get("idempotency_key", "")
        return calls.start(run_spec, attached or (), key, self._on_sent, streaming=streaming)

    async def _entry(self, part: Part | dict[str, Any]) -> dict[str, Any]:
        """Builds an input of the run spec; uploads a file before."""
        return part if isinstance(part, dict) else calls.as_input(await self._remote_file(part))

    async def _remote_file(self, part: Part) -> calls.RemoteFile:
        match part:
            case Attachment():
                return (
                    await self._do(calls.upload(part, "user_data", calls.UPLOAD_RETENTION_SECONDS, self._on_sent))
                ).artifact
            case FileId():
                return (await self.file(part.id)).artifact
        return part

    async def _wait_until_settled(self, events: AsyncIterator[Event]) -> Run:
        """Reads events until the run has ended or awaits approval; returns the run."""
        async for event in events:
            if may_wait(event) and is_settled(run := await self.get(event.run_id)):
                return run
        raise AssertionError

    async def _saved(self, artifact: Artifact, folder: Path) -> Path:
        target = await asyncio.to_thread(find_target, artifact, folder)
        if not target.exists:
            with target.create() as file:
                await self._receive(Download(artifact, file), artifact)
        return target.path

    async def _receive(self, download: Download, artifact: Artifact) -> None:
        retry_policy = RetryPolicy(self.url)
        while True:
            try:
                async with self._open_stream(calls.content(artifact.sha256, download.headers)) as reply:
                    download.begin(reply.status_code)
                    async for piece in reply.aiter_bytes(CHUNK_BYTES):
                        await asyncio.to_thread(download.take, piece)
                return download.check()
            except (httpx.TransportError, Refused) as error:
                pause = retry_policy.pause(error)
            await asyncio.sleep(pause)

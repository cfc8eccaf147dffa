"""The client for programs on asyncio: the same methods, awaited."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, Unpack

import httpx

from gateway.client import calls
from gateway.client.attachments import Attachment, FileId, Part, Source, in_one_form, parts
from gateway.client.calls import Call
from gateway.client.downloads import Receipt, place
from gateway.client.errors import InvalidRequest, Refused
from gateway.client.models import Artifact, Conversation, Event, KeptFile, Model, Page, Run, TaskKind
from gateway.client.options import Options, spec
from gateway.client.pipelines.aio import AsyncKeeping
from gateway.client.request_body import PIECE_BYTES
from gateway.client.retry import Patience
from gateway.client.streams import Following, is_settled, settled
from gateway.client.values import part_or_value

T = TypeVar("T")

Plan = Run | Sequence[Mapping[str, Any]]


class AsyncHuggingGPT(AsyncKeeping):
    """A gateway. Every method raises a HuggingGPTError that names cause and remedy.

    Args:
        url: where it is; else HUGGINGGPT_URL, else http://127.0.0.1:8080.
        api_key: who asks; else HUGGINGGPT_API_KEY, else nobody in particular.
        verify: whose certificates are believed; True: those of certifi, or of SSL_CERT_FILE.
        on_sent: told of bytes sent and of all there are, while files are on their way.
    """

    async def ask(self, request: str = "", files: Sequence[Source] = (), **options: Unpack[Options]) -> Run:
        """Starts a run and waits until it has ended, or waits for its approval.

        Args:
            request: what to do, in words; may be left out with a plan.
            files: paths, bytes, URLs, ids of kept files, or artifacts of earlier runs.
            options: what else there is to say.
        """
        async with aclosing(self.stream(request, files, **options)) as events:
            return await self._settled(events)

    async def stream(
        self, request: str = "", files: Sequence[Source] = (), **options: Unpack[Options]
    ) -> AsyncGenerator[Event, None]:
        """Starts a run and yields its events, each once, up to its end, over as many connections as it takes."""
        start = await self._start(request, files, options, streaming=True)
        async with aclosing(self._followed(Following(self.url, start=start))) as events:
            async for event in events:
                yield event

    async def start(self, request: str = "", files: Sequence[Source] = (), **options: Unpack[Options]) -> Run:
        """Starts a run and does not wait for it."""
        return await self._do(await self._start(request, files, options, streaming=False))

    async def watch(self, run_id: str, after: int = 0) -> AsyncGenerator[Event, None]:
        """The events of a run after a number, each once, up to its end, over as many connections as it takes."""
        async with aclosing(self._followed(Following(self.url, run_id, after))) as events:
            async for event in events:
                yield event

    async def wait(self, run_id: str) -> Run:
        """Waits until a run has ended, or waits for its approval."""
        async with aclosing(self.watch(run_id)) as events:
            return await self._settled(events)

    async def get(self, run_id: str) -> Run:
        return await self._do(calls.run(run_id))

    async def runs(
        self, *, states: Sequence[str] = (), conversation_id: str = "", page_size: int = 0, page_token: str = ""
    ) -> Page[Run]:
        """Runs, newest first, without tasks and answers; the gateway decides how many unless page_size does."""
        return await self._do(calls.runs(states, conversation_id, page_size, page_token))

    async def cancel(self, run_id: str) -> None:
        """Asks a run to stop; its last event tells when it has."""
        await self._do(calls.cancel(run_id))

    async def approve(self, run_id: str, plan: Plan | None = None) -> None:
        """Lets a waiting plan run, or this one instead of it."""
        await self._do(calls.approve(run_id, plan))

    async def verify(self, run_id: str) -> Any:
        """Has a run's deterministic tasks done again, by the run that the answer names."""
        return await self._do(calls.verify(run_id))

    async def delete(self, run_id: str) -> None:
        """Removes an ended run."""
        await self._do(calls.delete(run_id))

    async def upload(
        self,
        source: str | PathLike[str] | bytes | Attachment,
        *,
        purpose: str = "user_data",
        expires_after: int | None = None,
    ) -> KeptFile:
        """Keeps a file of any size, in constant memory.

        Args:
            source: its path, or its bytes.
            purpose: what it is for.
            expires_after: seconds, an hour to thirty days; None: until it is deleted.
        """
        (part,) = parts([source])
        if not isinstance(part, Attachment):
            raise InvalidRequest(f"{source!r} is no file here", code="FILE", remedy="give a path or bytes")
        return await self._do(calls.upload(part, purpose, expires_after, self._on_sent))

    async def file(self, file_id: str) -> KeptFile:
        return await self._do(calls.file(file_id))

    async def files(self, *, after: str = "", limit: int = 0) -> Page[KeptFile]:
        """Kept files, newest first."""
        return await self._do(calls.files(after, limit))

    async def delete_file(self, file_id: str) -> None:
        await self._do(calls.delete_file(file_id))

    async def artifact(self, sha256: str) -> Artifact:
        """What is known of an artifact."""
        return await self._do(calls.artifact(sha256))

    async def read(self, artifact: Artifact) -> bytes:
        """All of an artifact, once it is known to be whole."""
        content = BytesIO()
        await self.copy(artifact, content)
        return content.getvalue()

    async def copy(self, artifact: Artifact, file: BinaryIO) -> None:
        """All of an artifact into a file; what is there before Damaged is raised is none of it."""
        await self._receive(Receipt(artifact, file), artifact)

    async def save(self, made: Run | KeptFile | Artifact, folder: str | PathLike[str] = ".") -> list[Path]:
        """What a run made, or a file, as files of a folder: under safe names, over no other file, known to be whole."""
        return [await self._saved(artifact, Path(folder)) for artifact in calls.artifacts(made)]

    async def conversations(self, *, page_size: int = 0, page_token: str = "") -> Page[Conversation]:
        """Conversations, those begun last first, without their runs."""
        return await self._do(calls.conversations(page_size, page_token))

    async def conversation(self, conversation_id: str) -> Conversation:
        return await self._do(calls.conversation(conversation_id))

    async def delete_conversation(self, conversation_id: str) -> None:
        """Removes all runs of a conversation."""
        await self._do(calls.delete_conversation(conversation_id))

    async def tasks(self) -> list[TaskKind]:
        """The kinds of task that can be planned now."""
        return await self._do(calls.tasks())

    async def models(self, task: str = "") -> list[Model]:
        """The models that can be chosen now, or those for one kind of task."""
        return await self._do(calls.models(task))

    async def forget(self, expert: str) -> None:
        """Drops what is remembered of an expert that sleeps."""
        await self._do(calls.forget(expert))

    async def fetch(self, path: str) -> Any:
        """The JSON that the gateway has at a path, such as /v1/experts."""
        return await self._do(calls.fetch(path))

    async def _start(self, request: str, files: Sequence[Source], options: Options, *, streaming: bool) -> Call[Run]:
        asked, found = spec(request, options), parts(files)
        named = options.get("inputs", {})
        inputs = [{"name": name, **await self._entry(part_or_value(value, name))} for name, value in named.items()]
        attached = in_one_form(found)
        if attached is None:
            inputs += [await self._entry(part) for part in found]
        if inputs:
            asked["inputs"] = inputs
        key = options.get("idempotency_key", "")
        return calls.start(asked, attached or (), key, self._on_sent, streaming=streaming)

    async def _entry(self, part: Part | dict[str, Any]) -> dict[str, Any]:
        """An input as a spec has it; a file is sent before."""
        return part if isinstance(part, dict) else calls.as_input(await self._known(part))

    async def _known(self, part: Part) -> calls.Known:
        match part:
            case Attachment():
                return (await self._do(calls.upload(part, "user_data", calls.HELD_SECONDS, self._on_sent))).artifact
            case FileId():
                return (await self.file(part.id)).artifact
        return part

    async def _settled(self, events: AsyncIterator[Event]) -> Run:
        """The run, once nothing more happens to it by itself."""
        async for event in events:
            if settled(event) and is_settled(run := await self.get(event.run_id)):
                return run
        raise AssertionError

    async def _saved(self, artifact: Artifact, folder: Path) -> Path:
        found = await asyncio.to_thread(place, artifact, folder)
        if not found.is_there:
            with found.arriving() as file:
                await self._receive(Receipt(artifact, file), artifact)
        return found.path

    async def _receive(self, receipt: Receipt, artifact: Artifact) -> None:
        patience = Patience(self.url)
        while True:
            try:
                async with self._streamed(calls.content(artifact.sha256, receipt.headers)) as reply:
                    receipt.begin(reply.status_code)
                    async for piece in reply.aiter_bytes(PIECE_BYTES):
                        await asyncio.to_thread(receipt.take, piece)
                return receipt.check()
            except (httpx.TransportError, Refused) as error:
                pause = patience.pause(error)
            await asyncio.sleep(pause)

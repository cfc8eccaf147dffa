"""The client for programs that wait."""

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
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
from gateway.client.pipelines.sync import Keeping
from gateway.client.request_body import PIECE_BYTES
from gateway.client.retry import Patience
from gateway.client.streams import Following, is_settled, settled
from gateway.client.values import part_or_value

T = TypeVar("T")

Plan = Run | Sequence[Mapping[str, Any]]


class HuggingGPT(Keeping):
    """A gateway. Every method raises a HuggingGPTError that names cause and remedy.

    Args:
        url: where it is; else HUGGINGGPT_URL, else http://127.0.0.1:8080.
        api_key: who asks; else HUGGINGGPT_API_KEY, else nobody in particular.
        verify: whose certificates are believed; True: those of certifi, or of SSL_CERT_FILE.
        on_sent: told of bytes sent and of all there are, while files are on their way.
    """

    def ask(self, request: str = "", files: Sequence[Source] = (), **options: Unpack[Options]) -> Run:
        """Starts a run and waits until it has ended, or waits for its approval.

        Args:
            request: what to do, in words; may be left out with a plan.
            files: paths, bytes, URLs, ids of kept files, or artifacts of earlier runs.
            options: what else there is to say.
        """
        with closing(self.stream(request, files, **options)) as events:
            return self._settled(events)

    def stream(
        self, request: str = "", files: Sequence[Source] = (), **options: Unpack[Options]
    ) -> Generator[Event, None, None]:
        """Starts a run and yields its events, each once, up to its end, over as many connections as it takes."""
        yield from self._followed(Following(self.url, start=self._start(request, files, options, streaming=True)))

    def start(self, request: str = "", files: Sequence[Source] = (), **options: Unpack[Options]) -> Run:
        """Starts a run and does not wait for it."""
        return self._do(self._start(request, files, options, streaming=False))

    def watch(self, run_id: str, after: int = 0) -> Generator[Event, None, None]:
        """The events of a run after a number, each once, up to its end, over as many connections as it takes."""
        yield from self._followed(Following(self.url, run_id, after))

    def wait(self, run_id: str) -> Run:
        """Waits until a run has ended, or waits for its approval."""
        with closing(self.watch(run_id)) as events:
            return self._settled(events)

    def get(self, run_id: str) -> Run:
        return self._do(calls.run(run_id))

    def runs(
        self, *, states: Sequence[str] = (), conversation_id: str = "", page_size: int = 0, page_token: str = ""
    ) -> Page[Run]:
        """Runs, newest first, without tasks and answers; the gateway decides how many unless page_size does."""
        return self._do(calls.runs(states, conversation_id, page_size, page_token))

    def cancel(self, run_id: str) -> None:
        """Asks a run to stop; its last event tells when it has."""
        self._do(calls.cancel(run_id))

    def approve(self, run_id: str, plan: Plan | None = None) -> None:
        """Lets a waiting plan run, or this one instead of it."""
        self._do(calls.approve(run_id, plan))

    def verify(self, run_id: str) -> Any:
        """Has a run's deterministic tasks done again, by the run that the answer names."""
        return self._do(calls.verify(run_id))

    def delete(self, run_id: str) -> None:
        """Removes an ended run."""
        self._do(calls.delete(run_id))

    def upload(
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
        return self._do(calls.upload(part, purpose, expires_after, self._on_sent))

    def file(self, file_id: str) -> KeptFile:
        return self._do(calls.file(file_id))

    def files(self, *, after: str = "", limit: int = 0) -> Page[KeptFile]:
        """Kept files, newest first."""
        return self._do(calls.files(after, limit))

    def delete_file(self, file_id: str) -> None:
        self._do(calls.delete_file(file_id))

    def artifact(self, sha256: str) -> Artifact:
        """What is known of an artifact."""
        return self._do(calls.artifact(sha256))

    def read(self, artifact: Artifact) -> bytes:
        """All of an artifact, once it is known to be whole."""
        content = BytesIO()
        self.copy(artifact, content)
        return content.getvalue()

    def copy(self, artifact: Artifact, file: BinaryIO) -> None:
        """All of an artifact into a file; what is there before Damaged is raised is none of it."""
        self._receive(Receipt(artifact, file), artifact)

    def save(self, made: Run | KeptFile | Artifact, folder: str | PathLike[str] = ".") -> list[Path]:
        """What a run made, or a file, as files of a folder: under safe names, over no other file, known to be whole."""
        return [self._saved(artifact, Path(folder)) for artifact in calls.artifacts(made)]

    def conversations(self, *, page_size: int = 0, page_token: str = "") -> Page[Conversation]:
        """Conversations, those begun last first, without their runs."""
        return self._do(calls.conversations(page_size, page_token))

    def conversation(self, conversation_id: str) -> Conversation:
        return self._do(calls.conversation(conversation_id))

    def delete_conversation(self, conversation_id: str) -> None:
        """Removes all runs of a conversation."""
        self._do(calls.delete_conversation(conversation_id))

    def tasks(self) -> list[TaskKind]:
        """The kinds of task that can be planned now."""
        return self._do(calls.tasks())

    def models(self, task: str = "") -> list[Model]:
        """The models that can be chosen now, or those for one kind of task."""
        return self._do(calls.models(task))

    def forget(self, expert: str) -> None:
        """Drops what is remembered of an expert that sleeps."""
        self._do(calls.forget(expert))

    def fetch(self, path: str) -> Any:
        """The JSON that the gateway has at a path, such as /v1/experts."""
        return self._do(calls.fetch(path))

    def _start(self, request: str, files: Sequence[Source], options: Options, *, streaming: bool) -> Call[Run]:
        asked, found = spec(request, options), parts(files)
        named = options.get("inputs", {})
        inputs = [{"name": name, **self._entry(part_or_value(value, name))} for name, value in named.items()]
        attached = in_one_form(found)
        if attached is None:
            inputs += [self._entry(part) for part in found]
        if inputs:
            asked["inputs"] = inputs
        key = options.get("idempotency_key", "")
        return calls.start(asked, attached or (), key, self._on_sent, streaming=streaming)

    def _entry(self, part: Part | dict[str, Any]) -> dict[str, Any]:
        """An input as a spec has it; a file is sent before."""
        return part if isinstance(part, dict) else calls.as_input(self._known(part))

    def _known(self, part: Part) -> calls.Known:
        match part:
            case Attachment():
                return self._do(calls.upload(part, "user_data", calls.HELD_SECONDS, self._on_sent)).artifact
            case FileId():
                return self.file(part.id).artifact
        return part

    def _settled(self, events: Iterator[Event]) -> Run:
        """The run, once nothing more happens to it by itself."""
        for event in events:
            if settled(event) and is_settled(run := self.get(event.run_id)):
                return run
        raise AssertionError

    def _saved(self, artifact: Artifact, folder: Path) -> Path:
        found = place(artifact, folder)
        if not found.is_there:
            with found.arriving() as file:
                self._receive(Receipt(artifact, file), artifact)
        return found.path

    def _receive(self, receipt: Receipt, artifact: Artifact) -> None:
        patience = Patience(self.url)
        while True:
            try:
                with self._streamed(calls.content(artifact.sha256, receipt.headers)) as reply:
                    receipt.begin(reply.status_code)
                    for piece in reply.iter_bytes(PIECE_BYTES):
                        receipt.take(piece)
                return receipt.check()
            except (httpx.TransportError, Refused) as error:
                pause = patience.pause(error)
            time.sleep(pause)

"""A gateway whose scripted services read images aloud, and a folder for commands of the command line."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.expert_pb2 import InferRequest
from services.common.artifacts import ArtifactStore
from services.common.errors import InvalidRequest
from services.orchestrator.settings import Settings
from tests.service.test_cli_runs import Shell
from tests.support.orchestrator import ScriptedPeers
from tests.support.pipeline_gateway import PipelineGateway, start_pipeline_gateway

PLAN = [
    {"id": 1, "task": "image-to-text", "arguments": {"image": {"input": "picture"}}},
    {"id": 2, "task": "text-to-speech", "arguments": {"text": {"task_id": 1, "output": "text"}}},
]
QUESTION_PLAN = [
    {
        "id": 1,
        "task": "visual-question-answering",
        "arguments": {"image": {"input": "picture"}, "question": {"input": "question"}},
    }
]
AUDIO_BYTES = 200_000
"""Content of an audio file."""


def picture(content: str) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + content.encode()


@dataclass
class Reader:
    """Reads images aloud; images with certain content fail or block."""

    store: ArtifactStore
    texts_read: list[str] = field(default_factory=list)
    """Texts it has read, with repetitions."""
    blocked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a call blocks."""
    release: asyncio.Event = field(default_factory=asyncio.Event)
    unreadable: str = "broken"
    """Content that it cannot read."""

    async def __call__(self, request: InferRequest) -> dict[str, Value]:
        if request.task == "text-to-speech":
            speech = request.inputs["text"].text.encode().ljust(AUDIO_BYTES, b".")
            artifact = await self.store.put("default", speech, media_type="audio/wav", name="speech.wav")
            return {"audio": Value(artifact=artifact)}
        image = request.inputs["image"].artifact
        text = (await self.store.get("default", image.sha256)).removeprefix(picture("")).decode()
        self.texts_read.append(text)
        if text == self.unreadable:
            raise InvalidRequest(f"{image.name} is damaged", remedy="mend it")
        if text == "slow":
            self.blocked.set()
            await self.release.wait()
        if request.task == "visual-question-answering":
            return {"text": Value(text=f"{request.inputs['question'].text} {text}"), "answers": Value(json="[]")}
        return {"text": Value(text=text)}


@dataclass(frozen=True)
class ReadAloud:
    """The gateway, its expert and the folder."""

    gateway: PipelineGateway
    reader: Reader
    shell: Shell

    @property
    def folder(self) -> Path:
        return self.shell.folder

    def pictures(self, **contents: str) -> None:
        """Paths of the files in the folder `in`, by name."""
        (self.folder / "in").mkdir(exist_ok=True)
        for name, content in contents.items():
            (self.folder / "in" / f"{name}.png").write_bytes(picture(content))


@asynccontextmanager
async def start_read_aloud(
    peers: ScriptedPeers, settings: Settings, folder: Path, **given: Any
) -> AsyncIterator[ReadAloud]:
    """Starts the gateway, and saves both plans as pipelines `aloud` and `asking`."""
    async with start_pipeline_gateway(peers, settings, folder, **given) as gateway:
        reader = Reader(gateway.gateway.store)
        peers.infer["model"] = reader
        for name, plan in (("aloud", PLAN), ("asking", QUESTION_PLAN)):
            saved = await gateway.save(name, plan=plan)
            assert saved.is_success, saved.text
        yield ReadAloud(gateway, reader, Shell(gateway.gateway, folder))

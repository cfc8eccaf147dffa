"""The audio and video experts as processes, with tiny weights under the ids of their cards."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest

from experts.host.handler import Media
from protos.hugginggpt.v1 import expert_pb2 as pb
from services.common.artifacts import ArtifactStore
from services.common.channel import dial
from services.common.errors import FailedPrecondition
from tests.support.logs import logged
from tests.tiny import ExpertClient, load_models
from tests.tiny.audio_files import HIGH, make_tone, to_wav
from tests.tiny.video_files import RED, encode_frames, solid_frame

pytestmark = pytest.mark.slow

Start = Callable[[str, str, str], Awaitable[Process]]


@pytest.fixture
async def start_expert(tmp_path: Path) -> AsyncIterator[Start]:
    """Starts the expert of a modality with one tiny model under the id of a card."""
    settings = {
        "EXPERT_LISTEN": "127.0.0.1:0",
        "EXPERT_MODELS_URL": str(tmp_path / "models"),
        "ARTIFACTS_URL": (tmp_path / "artifacts").as_uri(),
        "HF_HUB_OFFLINE": "1",
    }
    processes: list[Process] = []

    async def start_expert(modality: str, tiny_id: str, card: str) -> Process:
        folder = tmp_path / "models" / card
        folder.mkdir(parents=True)
        load_models(modality)[tiny_id].build(folder)
        command, root = (sys.executable, "-m", f"experts.{modality}"), Path(__file__).parents[2]
        process = await asyncio.create_subprocess_exec(*command, stderr=PIPE, env={**os.environ, **settings}, cwd=root)
        processes.append(process)
        return process

    yield start_expert
    for process in processes:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@dataclass(frozen=True)
class Case:
    """One modality's expert with a model, an input and the expected text."""

    modality: str
    tiny_id: str
    card: str
    """Id of the card whose model is replaced by the tiny one."""
    media: Media
    expected: str
    missing_task: str
    """A task whose models are not on this machine."""


WITHOUT_CARDS = {"audio-to-audio"}
"""Tasks with a loader for an operator's own model, and no card."""

CASES = (
    Case(
        "audio",
        "tiny/pitches",
        "MIT/ast-finetuned-audioset-10-10-0.4593",
        to_wav(make_tone(HIGH)),
        "high",
        "automatic-speech-recognition",
    ),
    Case(
        "video",
        "tiny/videomae",
        "MCG-NJU/videomae-base-finetuned-kinetics",
        encode_frames([solid_frame(RED, 32, 32)] * 8),
        "red",
        "video-to-text",
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.modality)
async def test_process_serves_describe_and_infer_reports_missing_models_and_stops_on_sigterm(
    start_expert: Start, tmp_path: Path, case: Case
) -> None:
    inputs = {case.modality: case.media}
    process = await start_expert(case.modality, case.tiny_id, case.card)
    async with asyncio.timeout(90):
        listening = (await logged(process, "serving"))["port"]
        await logged(process, "ready")
        async with dial(f"127.0.0.1:{listening}") as channel:
            await channel.channel_ready()
            expert = ExpertClient(channel, ArtifactStore.open((tmp_path / "artifacts").as_uri()))
            description = await expert.stub.Describe(pb.DescribeRequest(), timeout=10)
            loaders = import_module(f"experts.{case.modality}.tasks").TASKS
            assert {spec.name for spec in description.tasks} == loaders.keys() - WITHOUT_CARDS
            assert case.card in {model.id for model in description.models}
            assert (await expert.call(f"{case.modality}-classification", inputs, case.card))["text"] == case.expected
            missing = next(model.id for model in description.models if model.task == case.missing_task)
            error = await expert.call_error(case.missing_task, inputs, missing)
            assert isinstance(error, FailedPrecondition)
            assert error.reason == "LOAD_FAILED"
            assert missing in error.message
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0

"""The experts of sound and of video as processes of their own, with tiny weights under the names on their cards."""

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
from tests.tiny import Served, models
from tests.tiny.films import RED, filmed, plain
from tests.tiny.sounds import HIGH, recorded, tone

pytestmark = pytest.mark.slow

Start = Callable[[str, str, str], Awaitable[Process]]


@pytest.fixture
async def start_expert(tmp_path: Path) -> AsyncIterator[Start]:
    """Starts the expert of a modality, with one tiny model under the id of one of its cards."""
    own = {
        "EXPERT_LISTEN": "127.0.0.1:0",
        "EXPERT_MODELS_URL": str(tmp_path / "models"),
        "ARTIFACTS_URL": (tmp_path / "artifacts").as_uri(),
        "HF_HUB_OFFLINE": "1",
    }
    started: list[Process] = []

    async def start_expert(modality: str, tiny: str, card: str) -> Process:
        folder = tmp_path / "models" / card
        folder.mkdir(parents=True)
        models(modality)[tiny].build(folder)
        command, root = (sys.executable, "-m", f"experts.{modality}"), Path(__file__).parents[2]
        process = await asyncio.create_subprocess_exec(*command, stderr=PIPE, env={**os.environ, **own}, cwd=root)
        started.append(process)
        return process

    yield start_expert
    for process in started:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@dataclass(frozen=True)
class Case:
    """What is asked of one modality's expert."""

    modality: str
    tiny: str
    card: str
    """Under whose id the tiny model stands."""
    media: Media
    said: str
    absent: str
    """A task whose models are not here."""


CASES = (
    Case(
        "audio",
        "tiny/pitches",
        "MIT/ast-finetuned-audioset-10-10-0.4593",
        recorded(tone(HIGH)),
        "high",
        "automatic-speech-recognition",
    ),
    Case(
        "video",
        "tiny/videomae",
        "MCG-NJU/videomae-base-finetuned-kinetics",
        filmed([plain(RED, 32, 32)] * 8),
        "red",
        "video-to-text",
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.modality)
async def test_it_starts_describes_itself_serves_names_what_is_not_here_and_ends_when_told(
    start_expert: Start, tmp_path: Path, case: Case
) -> None:
    inputs = {case.modality: case.media}
    process = await start_expert(case.modality, case.tiny, case.card)
    async with asyncio.timeout(90):
        listening = (await logged(process, "serving"))["port"]
        await logged(process, "ready")
        async with dial(f"127.0.0.1:{listening}") as channel:
            await channel.channel_ready()
            expert = Served(channel, ArtifactStore.open((tmp_path / "artifacts").as_uri()))
            described = await expert.stub.Describe(pb.DescribeRequest(), timeout=10)
            assert {spec.name for spec in described.tasks} == set(import_module(f"experts.{case.modality}.tasks").TASKS)
            assert case.card in {model.id for model in described.models}
            assert (await expert.ask(f"{case.modality}-classification", inputs, case.card))["text"] == case.said
            missing = next(model.id for model in described.models if model.task == case.absent)
            error = await expert.refusal(case.absent, inputs, missing)
            assert (type(error), error.reason) == (FailedPrecondition, "LOAD_FAILED")
            assert missing in error.message
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0

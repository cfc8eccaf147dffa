"""Hostile files: refused by name, while other calls are answered and memory use stays bounded."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from experts.audio.waveforms import decode_samples
from experts.host.app import serve
from experts.host.expert import Expert, build_offers
from experts.host.handler import Call, Handler, Inputs, Media, Outputs, Parameters
from experts.host.media import open_image
from experts.host.settings import Settings
from experts.video.frames import sample_frames
from protos.hugginggpt.v1.artifact_pb2 import MODALITY_AUDIO, MODALITY_IMAGE, MODALITY_TEXT, MODALITY_VIDEO
from protos.hugginggpt.v1.model_pb2 import ModelCard
from protos.hugginggpt.v1.task_pb2 import Port, TaskSpec
from services.common import errors
from services.common.artifacts import ArtifactStore
from services.common.channel import dial
from tests.support.hostile_files import gif_bomb, many_tracks_mp4, path_pdf, png_bomb, wav_with_false_sizes
from tests.support.process_tree import descendants, is_running, memory_bytes
from tests.support.processes import processes
from tests.support.samples import sample
from tests.support.served_expert import ServedExpert, serve_expert

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

WAIT_SECONDS = 5.0
"""Maximum delay of an ordinary call by a hostile file."""
GROWTH_BYTES = 1_500_000_000
LIMITS = {"EXPERT_DECODE_CPU_SECONDS": "2", "EXPERT_DECODE_WALL_SECONDS": "60"}
MODELS = "rapidocr,opencv/haar-frontalface,lite/image-edits,lite/spectral-gate"
FACE = sample("face.jpg")

READING = TaskSpec(
    name="reading",
    inputs=[
        Port(name="image", modality=MODALITY_IMAGE),
        Port(name="audio", modality=MODALITY_AUDIO),
        Port(name="video", modality=MODALITY_VIDEO),
    ],
    outputs=[Port(name="text", modality=MODALITY_TEXT, required=True)],
)


class Reading(Handler):
    """Decodes as the experts with torch do, in `prepare`."""

    def prepare(self, inputs: Inputs, parameters: Parameters) -> str:
        if "image" in inputs:
            return str(open_image(inputs["image"]).size)
        return str(
            len(sample_frames(inputs["video"], 4))
            if "video" in inputs
            else len(decode_samples(inputs["audio"], 16_000))
        )

    def run(self, items: Sequence[str], call: Call) -> Sequence[str]:
        return items

    def finish(self, raw: str) -> Outputs:
        return {"text": raw}


def load_reading(_model_id: str, _device: str) -> Handler:
    return Reading()


@pytest.fixture(scope="module")
def _limits() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in LIMITS.items():
            patch.setenv(name, value)
        patch.setenv("EXPERT_ALLOWED", MODELS)
        yield


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lite_expert(_limits: None, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServedExpert]:
    pytest.importorskip("rapidocr", reason="there is no wheel of its engine for this machine")
    async with serve_expert("experts.lite", tmp_path_factory.mktemp("store")) as expert:
        await expert.call("object-detection", model="opencv/haar-frontalface", image=FACE)
        yield expert


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def reading_expert(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServedExpert]:
    """An expert with one CPU thread, whose models decode in `prepare`."""
    pytest.importorskip("av", reason="videos need the extra video")
    folder = tmp_path_factory.mktemp("store")
    expert = Expert(
        "reading",
        build_offers(
            [ModelCard(id="m", revision="1", task="reading")], {"reading": READING}, {"reading": load_reading}
        ),
        ("m",),
    )
    settings: dict[str, Any] = {"listen": "127.0.0.1:0", "ARTIFACTS_URL": folder.as_uri(), "threads": 1, "allowed": ""}
    settings |= {"decode_cpu_seconds": 2.0, "decode_wall_seconds": 60.0}
    async with (
        serve(expert, Settings(**settings)) as running,
        dial(f"127.0.0.1:{running.port}") as channel,
    ):
        await channel.channel_ready()
        served = ServedExpert(channel, ArtifactStore.open(folder.as_uri()), asyncio.Event().wait)  # type: ignore[arg-type]
        await served.until(1)
        await served.call("reading", image=FACE)
        yield served


@asynccontextmanager
async def measured() -> AsyncIterator[list[int]]:
    """Yields a list with the growth in bytes of this process, which serves the expert, and its children."""
    start, growth = memory_bytes(), [0]

    async def watch() -> None:
        while True:
            growth[0] = max(growth[0], await asyncio.to_thread(memory_bytes) - start)

    watching = asyncio.create_task(watch())
    try:
        yield growth
    finally:
        watching.cancel()


async def call_error(expert: ServedExpert, task: str, **inputs: Any) -> errors.ServiceError | None:
    """The error of a call; None if it succeeds."""
    try:
        await expert.call(task, seconds=280, **inputs)
    except grpc.aio.AioRpcError as error:
        return errors.from_rpc(error)
    return None


async def find_face(expert: ServedExpert) -> None:
    """An ordinary call."""
    await expert.call("object-detection", model="opencv/haar-frontalface", image=FACE, seconds=60)


async def seconds_of(call: Awaitable[Any]) -> float:
    """Returns the duration of a call."""
    started_at = time.monotonic()
    await call
    return time.monotonic() - started_at


async def wait_until_decoding(expert: ServedExpert) -> None:
    """Waits until a call runs or has ended."""
    while not (load := (await expert.describe()).load).running and load.waiting:
        pass


def big_pdf() -> Media:
    return path_pdf(324_000_000, "big.pdf")


def small_pdf() -> Media:
    return path_pdf(4_000_000, "small.pdf")


def many_tracks_m4a() -> Media:
    return Media(many_tracks_mp4().content, "audio/mp4", "tracks.m4a")


async def test_hostile_pdfs_are_small() -> None:
    assert len(big_pdf().content) < 1_000_000
    assert len(small_pdf().content) < 15_000


@pytest.mark.parametrize(
    ("task", "make", "reasons"),
    [
        ("image-to-text", big_pdf, {"DECODE_LIMIT"}),
        ("object-detection", big_pdf, {"DECODE_LIMIT"}),
        ("image-to-text", small_pdf, {"DECODE_LIMIT"}),
        ("object-detection", partial(png_bomb, 60_000, 60_000, "claims.png"), {"INVALID"}),
        ("object-detection", partial(png_bomb, 10_000, 10_000, "full.png"), {"DECODE_LIMIT", None}),
        ("object-detection", partial(gif_bomb, 60_000, "claims.gif"), {"INVALID"}),
        ("object-detection", partial(gif_bomb, 9_900, "full.gif"), {"DECODE_LIMIT", None}),
        ("audio-to-audio", wav_with_false_sizes, {"INVALID"}),
    ],
    ids=["big-pdf-ocr", "big-pdf", "small-pdf", "png", "full-png", "gif", "full-gif", "wav"],
)
async def test_lite_answers_others_while_it_refuses_a_hostile_file(
    lite_expert: ServedExpert, task: str, make: Callable[[], Media], reasons: set[str | None]
) -> None:
    hostile = make()
    port = "audio" if task == "audio-to-audio" else "image"
    alone = await seconds_of(find_face(lite_expert))
    async with measured() as growth:
        call = asyncio.create_task(call_error(lite_expert, task, **{port: hostile}))
        await wait_until_decoding(lite_expert)
        waited = await seconds_of(find_face(lite_expert)) - alone
        error = await call
    assert waited < WAIT_SECONDS
    assert growth[0] < GROWTH_BYTES
    assert (error.reason if error else None) in reasons
    if error:
        assert error.code is grpc.StatusCode.INVALID_ARGUMENT
        assert hostile.name in error.message
        assert error.port == port


async def test_lite_answers_others_while_it_refuses_many_hostile_files(lite_expert: ServedExpert) -> None:
    calls = [asyncio.create_task(call_error(lite_expert, "image-to-text", image=small_pdf())) for _ in range(4)]
    await wait_until_decoding(lite_expert)
    await find_face(lite_expert)
    assert not all(call.done() for call in calls)
    errors_found = await asyncio.gather(*calls)
    assert [error.reason if error else None for error in errors_found] == ["DECODE_LIMIT"] * 4


@pytest.mark.parametrize(
    ("port", "make", "reasons"),
    [
        ("image", big_pdf, {"DECODE_LIMIT"}),
        ("image", small_pdf, {"DECODE_LIMIT"}),
        ("video", many_tracks_mp4, {"INVALID", "DECODE_LIMIT"}),
        ("audio", many_tracks_m4a, {"INVALID", "DECODE_LIMIT"}),
        ("audio", wav_with_false_sizes, {"INVALID"}),
    ],
    ids=["big-pdf", "small-pdf", "mp4", "m4a", "wav"],
)
async def test_model_that_decodes_in_prepare_answers_others_meanwhile(
    reading_expert: ServedExpert, port: str, make: Callable[[], Media], reasons: set[str]
) -> None:
    hostile = make()
    alone = await seconds_of(reading_expert.call("reading", image=FACE))
    async with measured() as growth:
        call = asyncio.create_task(call_error(reading_expert, "reading", **{port: hostile}))
        await wait_until_decoding(reading_expert)
        waited = await seconds_of(reading_expert.call("reading", image=FACE)) - alone
        error = await call
    assert waited < WAIT_SECONDS
    assert growth[0] < GROWTH_BYTES
    assert error is not None
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert error.reason in reasons
    assert hostile.name in error.message


async def test_workers_end_when_the_expert_is_killed(tmp_path: Path) -> None:
    async with processes(120) as start:
        settings = {"EXPERT_LISTEN": "127.0.0.1:0", "ARTIFACTS_URL": tmp_path.as_uri(), "EXPERT_ALLOWED": "rapidocr"}
        expert = await start("-m", "experts.lite", **settings)
        assert expert.stderr
        while b'"ready"' not in await expert.stderr.readline():
            pass
        workers = list(descendants(expert.pid))
        assert workers
        expert.send_signal(signal.SIGKILL)
        await expert.wait()
        await asyncio.to_thread(_wait_ended, workers)


def _wait_ended(process_ids: Sequence[int]) -> None:
    while any(is_running(process_id) for process_id in process_ids):
        pass

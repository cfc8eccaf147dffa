"""A local stack with one expert per modality: separate processes with tiny weights under the real model names."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from experts.host.handler import Media
from tests.system.conftest import LocalStack, start_local_stack
from tests.tiny.audio_files import read_wav
from tests.tiny.image_files import solid_image
from tests.tiny.image_text import build_blip_captioning
from tests.tiny.reference_audio import synthesize
from tests.tiny.speech import build_vits
from tests.tiny.translation import build_m2m100

pytestmark = pytest.mark.slow

EXPERTS = ("lite", "text", "vision", "audio", "video", "diffusion")
NO_HUB = "http://127.0.0.1:9"
"""Address without a Hub."""
CAPTIONS = {"blue": "good morning .", "red": "thank you ."}
CAPTIONER, TRANSLATOR, SPEAKER = "Salesforce/blip-image-captioning-base", "facebook/m2m100_418M", "facebook/mms-tts-deu"
ZERO_SHOT = "MoritzLaurer/deberta-v3-base-zeroshot-v2.0-c"
"""A model without local weights."""
BUILT: dict[str, Callable[[Path], None]] = {
    CAPTIONER: partial(build_blip_captioning, captions=CAPTIONS),
    TRANSLATOR: build_m2m100,
    SPEAKER: partial(build_vits, language="deu"),
}
MAPS = ("canny", "depth", "hed", "mlsd", "normal", "openpose", "scribble", "seg")
TASKS = {
    "lite": "text-statistics page-count calculation image-conversion audio-conversion audio-to-audio",
    "text": """text-classification zero-shot-classification token-classification question-answering
        table-question-answering summarization translation text2text-generation text-generation conversational
        fill-mask feature-extraction sentence-similarity""",
    "vision": """image-classification zero-shot-image-classification object-detection zero-shot-object-detection
        image-segmentation mask-generation depth-estimation image-to-text visual-question-answering
        document-question-answering image-feature-extraction keypoint-detection""",
    "audio": """automatic-speech-recognition audio-classification zero-shot-audio-classification text-to-speech
        text-to-audio voice-activity-detection""",
    "video": "video-classification text-to-video image-to-video video-to-text",
    "diffusion": "text-to-image image-to-image inpainting image-super-resolution "
    + " ".join(f"{name}-control {name}-text-to-image" for name in MAPS),
}
"""All tasks by expert, as configured; of lite those that no other expert offers."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    torch.set_num_threads(1)  # more threads slow down such small models
    for name, build in BUILT.items():
        (folder / name).mkdir(parents=True)
        build(folder / name)
    return folder


@pytest.fixture(scope="module")
def all_experts(tmp_path_factory: pytest.TempPathFactory, models: Path) -> Iterator[LocalStack]:
    home = tmp_path_factory.mktemp("all-experts")
    settings = {"HF_ENDPOINT": NO_HUB, "HF_HOME": str(home / "hub"), "HF_HUB_OFFLINE": "0", "OMP_NUM_THREADS": "1"}
    with start_local_stack(
        home, "--experts", ",".join(EXPERTS), EXPERT_MODELS_URL=str(models), **settings
    ) as local_stack:
        local_stack.wait_for_experts(*EXPERTS)
        yield local_stack


@pytest.fixture(scope="module", autouse=True)
def tasks_before_requests(all_experts: LocalStack) -> str:
    """Output of `hugginggpt tasks` before the first test: a task whose only model has failed to load is not listed."""
    return all_experts.run_cli("tasks").out


@pytest.fixture
def blue(tmp_path: Path) -> Path:
    path = tmp_path / "blue.png"
    solid_image("blue").save(path)
    return path


def test_every_task_is_listed_with_its_expert(tasks_before_requests: str) -> None:
    lines = [line.split() for line in tasks_before_requests.splitlines() if not line.startswith(" ")]
    listed = {line[0]: {token.strip(",") for token in line[line.index("→") :]} for line in lines}
    assert set(listed) == {task for names in TASKS.values() for task in names.split()}
    assert [task for expert, names in TASKS.items() for task in names.split() if expert not in listed[task]] == []
    assert "lite" in listed["image-to-text"]


def test_request_over_three_modalities_completes(all_experts: LocalStack, models: Path, blue: Path) -> None:
    request = "Describe this picture, translate the description into German and read it aloud"
    response = all_experts.ask(request, blue, seconds=100)  # each expert imports torch first
    done: dict[str, Any] = {result["task"]: result for result in response["results"]}
    assert response["status"] == "completed", response
    assert {task["task"]: task["depends_on"] for task in response["plan"]} == {
        "image-to-text": [],
        "translation": [1],
        "text-to-speech": [2],
    }
    assert [(done[task["task"]]["expert"], done[task["task"]]["model"]) for task in response["plan"]] == [
        ("vision", CAPTIONER),
        ("text", TRANSLATOR),
        ("audio", SPEAKER),
    ]
    assert done["image-to-text"]["outputs"]["text"] == "good morning."
    assert done["translation"]["outputs"]["text"] == "guten morgen ."
    (speech,) = [Path(made["path"]) for made in response["artifacts"] if made["media_type"] == "audio/wav"]
    samples, rate = read_wav(Media(speech.read_bytes(), "audio/wav", speech.name))
    assert rate == 16_000
    assert samples == pytest.approx(synthesize(models / SPEAKER, "guten morgen ."), abs=1e-4)


def test_missing_model_without_hub_reports_a_remedy(all_experts: LocalStack) -> None:
    response = all_experts.ask('Is "the match ended two to one" about sports or politics?')
    (result,) = response["results"]
    assert response["status"] == "failed"
    assert result["task"] == "zero-shot-classification"
    assert result["error"]["reason"] == "LOAD_FAILED"
    assert f"{ZERO_SHOT} is not on this machine, and {NO_HUB} cannot be reached" in result["error"]["message"]
    assert "--prefetch" in result["error"]["remedy"]
    assert result["error"]["message"] in response["answer"]
    requests = [
        json.loads(line) for line in all_experts.log.read_text().splitlines() if '"requesting the model"' in line
    ]
    assert (ZERO_SHOT, NO_HUB) in [(entry["model"], entry["at"]) for entry in requests]

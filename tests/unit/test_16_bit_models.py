"""Models in bfloat16 answer as in float32, within a tolerance; models of boxes, maps and sounds stay in float32."""

from collections.abc import Mapping

import pytest

from experts.host.expert import Offer, read_expert
from experts.host.load_context import ENGINE_CHOICE
from tests.tiny import TinyModels
from tests.tiny.task_examples import Case, RunningCall, Tolerance, assert_close

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

TOLERANCES: Mapping[str, Tolerance] = {
    "text": Tolerance(numbers=0.03),
    "vision": Tolerance(numbers=0.03, pixels=1.0, levels=4.0),
    "audio": Tolerance(numbers=0.03),
    "video": Tolerance(numbers=0.03, frames=6.0),
    "diffusion": Tolerance(levels=4.0),
}
"""By modality: 8 bits of mantissa are 0.4% of a number, and several layers add up."""
CASES = [
    Case("text", "text-classification", "tiny/sentiment"),
    Case("text", "zero-shot-classification", "tiny/inference"),
    Case("text", "token-classification", "tiny/tagger"),
    Case("text", "question-answering", "tiny/answerer"),
    Case("text", "translation", "tiny/m2m100"),
    Case("text", "conversational", "tiny/chat"),
    Case("text", "feature-extraction", "tiny/embedder"),
    Case("vision", "image-classification", "tiny/vit"),
    Case("vision", "zero-shot-image-classification", "tiny/clip"),
    Case("vision", "object-detection", "tiny/yolos"),
    Case("vision", "depth-estimation", "tiny/depth"),
    Case("vision", "image-feature-extraction", "tiny/dinov2"),
    Case("vision", "image-to-text", "tiny/blip"),
    Case("vision", "visual-question-answering", "tiny/vilt"),
    Case("audio", "automatic-speech-recognition", "tiny/letters"),
    Case("audio", "audio-classification", "tiny/pitches"),
    Case("audio", "zero-shot-audio-classification", "tiny/clap"),
    Case("video", "video-classification", "tiny/videomae"),
    Case("video", "text-to-video", "tiny/wan"),
    Case("diffusion", "text-to-image", "tiny/sd"),
    Case("diffusion", "image-super-resolution", "tiny/swin2sr"),
]
MODALITIES = ("vision", "audio", "video", "diffusion")
WRITE_TEXT = {"automatic-speech-recognition", "document-question-answering", "image-to-text", "video-to-text"}
"""Tasks whose models draw tokens: rounding seldom changes one."""
SOUNDS = {"text-to-speech", "text-to-audio", "audio-to-audio"}
SEPARATE_CODEC = {"nari-labs/Dia-1.6B-0626"}
"""Models of sounds whose codec is a model of its own, which the loader reads in float32."""
LARGE = 300_000_000
"""Parameters from which a model has 16-bit numbers on a GPU, except for those that make sounds."""


def name_case(case: Case) -> str:
    return f"{case.task}-{case.model}"


def is_exact(offer: Offer) -> bool:
    is_small = 0 < offer.card.parameter_count < LARGE and offer.spec.name not in WRITE_TEXT
    return is_small or (offer.spec.name in SOUNDS and offer.card.id not in SEPARATE_CODEC)


EXACT = [offer for name in MODALITIES for offer in read_expert(f"experts.{name}").offers if is_exact(offer)]


@pytest.mark.parametrize("case", CASES, ids=name_case)
def test_outputs_in_bfloat16_are_close_to_those_in_float32(case: Case, tiny_models: TinyModels) -> None:
    outputs = []
    for dtype in ("float32", "bfloat16"):
        handler, parameters = case.load(tiny_models, dtype), case.parameters()
        items = [handler.prepare(inputs, parameters) for inputs in case.inputs()]
        outputs.append([handler.finish(handler.run([item], RunningCall())[0]) for item in items])
        handler.close()
    assert_close(outputs[1], outputs[0], TOLERANCES[case.modality])


@pytest.mark.parametrize("offer", EXACT, ids=lambda offer: f"{offer.spec.name}-{offer.card.id}")
def test_small_model_and_model_of_sounds_have_float32_on_a_gpu(offer: Offer) -> None:
    assert offer.compute.on("cuda:0", ENGINE_CHOICE).dtype == "float32"

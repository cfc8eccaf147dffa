"""Diffusion handlers without a server: cancellation between steps, blocked and non-finite pictures, sizes and maps."""

import json
from importlib.resources import files
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from experts.diffusion.controlnet import map_text_to_image
from experts.diffusion.generation import DiffusionHandler, GeneratedPicture, GenerationItem
from experts.diffusion.image_size import ModelResolution, Size
from experts.diffusion.inpainting import binarize
from experts.diffusion.maps.depth import compute_normals
from experts.diffusion.maps.poses import to_openpose
from experts.diffusion.super_resolution import DiffusionUpscaler, image_super_resolution
from experts.diffusion.tasks import TASKS
from experts.diffusion.text_to_image import text_to_image
from experts.host import load_context
from experts.host.load_context import LoadContext, PipelineOptions
from experts.host.media import open_image
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.pipelines import load_components
from services.common.errors import FailedPrecondition, InvalidRequest, ModelFailed
from tests.tiny import TinyModels

# diffusers asks torch for TorchScript when it is imported.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
]


class CancelledCall:
    """A call that is cancelled after a number of steps, and records the progress messages."""

    def __init__(self, after_steps: int) -> None:
        self.after_steps = after_steps
        self.messages = list[str]()

    @property
    def cancelled(self) -> bool:
        return len(self.messages) >= self.after_steps

    def progress(self, fraction: float, message: str = "") -> None:
        assert 0 < fraction <= 1
        self.messages.append(message)


@pytest.fixture(scope="module")
def handler(tiny_models: TinyModels) -> Any:
    tiny_models.build("diffusion", "tiny/sd")
    return text_to_image("tiny/sd", "cpu")


def test_cancelled_call_runs_no_further_step(handler: Any) -> None:
    call = CancelledCall(after_steps=3)
    item = handler.prepare({"text": "a"}, {"num_inference_steps": 100, "seed": 1})
    assert handler.run([item], call) == []
    assert call.messages == ["step 1 of 100", "step 2 of 100", "step 3 of 100"]


def test_pipeline_is_reusable_after_a_cancelled_call(handler: Any) -> None:
    item = handler.prepare({"text": "a"}, {"num_inference_steps": 2, "seed": 1})
    before = handler.finish(handler.run([item], CancelledCall(after_steps=9))[0])
    handler.run([item], CancelledCall(after_steps=1))
    assert handler.finish(handler.run([item], CancelledCall(after_steps=9))[0]) == before
    assert open_image(before["image"]).size == (32, 32)


CARD = PipelineOptions({"num_inference_steps": 40, "guidance_scale": 0.5, "negative_prompt": "blurred"})


@pytest.fixture(scope="module")
def configured(tiny_models: TinyModels) -> Any:
    """A handler whose card states arguments of its pipeline."""
    tiny_models.build("diffusion", "tiny/sd")
    with load_context.use(LoadContext(pipeline=CARD)):
        return text_to_image("tiny/sd", "cpu")


def test_arguments_of_the_card_are_defaults(configured: DiffusionHandler) -> None:
    arguments = configured.prepare({"text": "a"}, {}).arguments
    assert {name: arguments[name] for name in CARD.arguments} == CARD.arguments


def test_parameters_of_the_call_replace_arguments_of_the_card(configured: DiffusionHandler) -> None:
    arguments = configured.prepare({"text": "a"}, {"num_inference_steps": 2, "guidance_scale": 7.0}).arguments
    assert arguments["num_inference_steps"] == 2
    assert arguments["guidance_scale"] == 7.0
    assert arguments["negative_prompt"] == "blurred"


def test_card_with_an_argument_that_the_pipeline_lacks_fails_the_load(tiny_models: TinyModels) -> None:
    tiny_models.build("diffusion", "tiny/sd")
    with (
        load_context.use(LoadContext(pipeline=PipelineOptions({"true_cfg_scale": 4.0}))),
        pytest.raises(FailedPrecondition, match="has no argument true_cfg_scale"),
    ):
        text_to_image("tiny/sd", "cpu")


def test_components_have_the_number_types_of_the_card_on_a_gpu(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, loaded = tiny_models.build("diffusion", "tiny/sd"), {}

    def record(part: Checkpoint, *_: Any, **__: Any) -> None:
        loaded[part.folder.name] = part.dtype

    monkeypatch.setattr(Checkpoint, "component", record)
    checkpoint = Checkpoint("tiny/sd", folder, "", torch.device("cuda"), torch.float16)
    with load_context.use(LoadContext(pipeline=PipelineOptions(dtypes={"vae": "float32"}))):
        load_components(checkpoint)
    assert loaded == {"text_encoder": torch.float16, "unet": torch.float16, "vae": torch.float32}


def test_default_seed_is_random(handler: Any) -> None:
    items = [handler.prepare({"text": "a"}, {}) for _ in range(2)]
    assert items[0].seed != items[1].seed


def test_picture_blocked_by_the_safety_checker_is_rejected(handler: DiffusionHandler) -> None:
    item = GenerationItem({}, 0, "picture.png")
    with pytest.raises(InvalidRequest, match="safety checker"):
        handler.finish(GeneratedPicture(np.zeros((8, 8, 3)), is_blocked=True, item=item))


def test_non_finite_picture_is_a_model_failure(handler: DiffusionHandler) -> None:
    with pytest.raises(ModelFailed, match="not finite"):
        handler.finish(
            GeneratedPicture(np.full((8, 8, 3), np.nan), is_blocked=False, item=GenerationItem({}, 0, "picture.png"))
        )


def test_upscaler_decodes_a_large_picture_in_tiles(tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_models.build("diffusion", "tiny/upscaler")
    upscaler = image_super_resolution("tiny/upscaler", "cpu")
    assert isinstance(upscaler, DiffusionUpscaler)
    vae, sides = upscaler.model.vae, list[int]()
    decode = vae.decoder.forward

    def record(latents: Any) -> Any:
        sides.append(max(latents.shape[2:]))
        return decode(latents)

    monkeypatch.setattr(vae.decoder, "forward", record)
    with torch.inference_mode():
        decoded = vae.decode(torch.zeros(1, 4, 300, 200)).sample
    assert decoded.shape == (1, 3, 1200, 800)
    assert max(sides) == 256


@pytest.mark.parametrize(
    ("size", "expected"),
    [((512, 512), (512, 512)), ((1, 1), (256, 256)), ((4000, 3000), (592, 440)), ((300, 200), (312, 208))],
)
def test_size_is_fitted_to_the_aspect_ratio_and_the_training_area(
    size: tuple[int, int], expected: tuple[int, int]
) -> None:
    assert ModelResolution(512, 8).fit(Size(*size), "image") == expected


def test_flat_surface_faces_the_viewer_and_a_slope_does_not() -> None:
    slope = np.tile(np.linspace(0.5, 1, 32, dtype=np.float32), (32, 1))
    assert tuple(compute_normals(np.ones((4, 4), dtype=np.float32))[2, 2]) == (127, 127, 255)
    assert compute_normals(slope)[16, 16][0] > 200


def test_neck_is_between_the_shoulders() -> None:
    joints = to_openpose({5: (10.0, 4.0), 6: (2.0, 8.0), 0: (6.0, 0.0)})
    assert joints == {0: (6.0, 0.0), 1: (6.0, 6.0), 2: (2.0, 8.0), 5: (10.0, 4.0)}
    assert 1 not in to_openpose({5: (10.0, 4.0)})


def test_every_task_has_a_card_with_licence_and_description() -> None:
    cards = json.loads((files("experts.diffusion") / "models.json").read_text(encoding="utf-8"))
    assert {card["task"] for card in cards} == set(TASKS)
    assert all(card["license"] for card in cards)
    assert all(len(card["description"]) > 60 for card in cards)


def test_mask_of_any_mode_is_binarized() -> None:

    mask = Image.new("RGB", (2, 1))
    mask.putpixel((1, 0), (200, 200, 200))
    assert list(binarize(mask).tobytes()) == [0, 255]


def test_controlnets_share_the_bytes_of_their_base_model(tiny_models: TinyModels) -> None:
    tiny_models.build("diffusion", "tiny/controlnet")
    handlers: list[Any] = [map_text_to_image("tiny/controlnet", "cpu") for _ in range(2)]
    (size,) = handlers[0].shared_bytes.values()
    unet = handlers[0].model.unet
    assert size > sum(weight.numel() * 4 for weight in unet.parameters())
    assert handlers[0].shared_bytes == handlers[1].shared_bytes

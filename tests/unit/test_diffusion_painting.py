"""What the host cannot see: that a pipeline stops within a step, and what is done about pictures that are none."""

import json
from importlib.resources import files
from typing import Any

import numpy as np
import pytest
from PIL import Image

from experts.diffusion.generation import Order, Painted, Painter
from experts.diffusion.image_size import Canvas, Size
from experts.diffusion.maps.depth import normals
from experts.diffusion.maps.poses import joints
from experts.diffusion.tasks import TASKS
from experts.diffusion.text_to_image import text_to_image
from experts.host.media import open_image
from services.common.errors import InvalidRequest, ModelFailed
from tests.tiny import Tiny

# diffusers asks torch for TorchScript when it is imported.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
]


class Leaving:
    """Whoever called leaves at a step."""

    def __init__(self, at: int) -> None:
        self.at, self.told = at, list[str]()

    @property
    def cancelled(self) -> bool:
        return len(self.told) >= self.at

    def progress(self, fraction: float, message: str = "") -> None:
        assert 0 < fraction <= 1
        self.told.append(message)


@pytest.fixture(scope="module")
def painter(tiny: Tiny) -> Any:
    tiny.built("diffusion", "tiny/sd")
    return text_to_image("tiny/sd", "cpu")


def test_no_step_is_taken_after_the_caller_left(painter: Any) -> None:
    call = Leaving(at=3)
    order = painter.prepare({"text": "a"}, {"num_inference_steps": 100, "seed": 1})
    assert painter.run([order], call) == []
    assert call.told == ["step 1 of 100", "step 2 of 100", "step 3 of 100"]


def test_the_pipeline_paints_again_after_it_was_left(painter: Any) -> None:
    order = painter.prepare({"text": "a"}, {"num_inference_steps": 2, "seed": 1})
    before = painter.finish(painter.run([order], Leaving(at=9))[0])
    painter.run([order], Leaving(at=1))
    assert painter.finish(painter.run([order], Leaving(at=9))[0]) == before
    assert open_image(before["image"]).size == (32, 32)


def test_without_a_seed_pictures_differ(painter: Any) -> None:
    orders = [painter.prepare({"text": "a"}, {}) for _ in range(2)]
    assert orders[0].seed != orders[1].seed


def test_what_a_safety_checker_blackened_is_refused(painter: Painter) -> None:
    order = Order({}, 0, "picture.png")
    with pytest.raises(InvalidRequest, match="safety checker"):
        painter.finish(Painted(np.zeros((8, 8, 3)), refused=True, order=order))


def test_a_picture_that_is_not_finite_is_a_failure(painter: Painter) -> None:
    with pytest.raises(ModelFailed, match="not finite"):
        painter.finish(Painted(np.full((8, 8, 3), np.nan), refused=False, order=Order({}, 0, "picture.png")))


@pytest.mark.parametrize(
    ("given", "worked"),
    [((512, 512), (512, 512)), ((1, 1), (256, 256)), ((4000, 3000), (592, 440)), ((300, 200), (312, 208))],
)
def test_pictures_are_worked_on_in_their_shape_and_about_the_models_size(
    given: tuple[int, int], worked: tuple[int, int]
) -> None:
    assert Canvas(512, 8).like(Size(*given), "image") == worked


def test_a_flat_surface_faces_the_viewer_and_a_slope_does_not() -> None:
    slope = np.tile(np.linspace(0.5, 1, 32, dtype=np.float32), (32, 1))
    assert tuple(normals(np.ones((4, 4), dtype=np.float32))[2, 2]) == (127, 127, 255)
    assert normals(slope)[16, 16][0] > 200


def test_the_neck_is_between_the_shoulders() -> None:
    seen = joints({5: (10.0, 4.0), 6: (2.0, 8.0), 0: (6.0, 0.0)})
    assert seen == {0: (6.0, 0.0), 1: (6.0, 6.0), 2: (2.0, 8.0), 5: (10.0, 4.0)}
    assert 1 not in joints({5: (10.0, 4.0)})


def test_every_task_has_a_card_that_names_its_licence() -> None:
    cards = json.loads((files("experts.diffusion") / "models.json").read_text(encoding="utf-8"))
    assert {card["task"] for card in cards} == set(TASKS)
    assert all(card["license"] and len(card["description"]) > 60 for card in cards)


def test_the_mode_of_a_mask_does_not_matter() -> None:
    from experts.diffusion.inpainting import _mask  # noqa: PLC0415  # beside its only use

    drawn = Image.new("RGB", (2, 1))
    drawn.putpixel((1, 0), (200, 200, 200))
    assert list(_mask(drawn).tobytes()) == [0, 255]

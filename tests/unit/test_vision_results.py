"""What the vision expert makes of what models find."""

from collections.abc import Sequence

import pytest
import torch
from PIL import Image

from experts.vision.image_batches import alike, fitted
from experts.vision.masks import distinct
from experts.vision.overlays import Found, boxed, counted, overlaid, plural

pytestmark = pytest.mark.slow


class Waiting:
    cancelled = False

    def progress(self, fraction: float, message: str = "") -> None: ...


class Gone(Waiting):
    cancelled = True


@pytest.mark.parametrize(
    ("one", "many"),
    [("cat", "cats"), ("person", "people"), ("box", "boxes"), ("berry", "berries"), ("wine glass", "wine glasses")],
)
def test_more_than_one_has_its_own_word(one: str, many: str) -> None:
    assert plural(one) == many


def test_what_was_found_is_counted_most_frequent_first() -> None:
    assert counted(["dog", "cat", "cat"]) == "2 cats, 1 dog"
    assert counted([]) == "nothing"


def test_of_boxes_that_are_the_same_thing_the_best_is_kept() -> None:
    boxes = torch.tensor([[0, 0, 10, 10], [0, 0, 10, 9], [20, 20, 30, 30], [0, 0, 5, 5]]).float()
    assert distinct(boxes, torch.tensor([0.9, 0.95, 0.8, 0.7])) == [1, 2, 3]
    assert distinct(torch.zeros(0, 4), torch.zeros(0)) == []


def test_pictures_of_one_shape_are_computed_together_and_come_back_in_order() -> None:
    groups: list[list[str]] = []

    def compute(items: Sequence[str]) -> list[str]:
        groups.append(list(items))
        return [item.upper() for item in items]

    assert alike(["a", "bb", "c", "dd"], len, compute, Waiting()) == ["A", "BB", "C", "DD"]
    assert groups == [["a", "c"], ["bb", "dd"]]
    assert alike(["a"], len, compute, Gone()) == []


def test_a_size_is_fitted_in_its_proportions() -> None:
    assert fitted((100, 50), 1_000_000) == (100, 50)
    assert fitted((4000, 2000), 2_000_000) == (2000, 1000)


def test_boxes_and_segments_are_drawn_on_a_copy() -> None:
    picture = Image.new("RGB", (64, 64), "white")
    marked = boxed(picture, [Found("cat", 0.9, (10.0, 10.0, 50.0, 50.0))])
    assert picture.getcolors() == [(64 * 64, (255, 255, 255))]
    assert marked.getpixel((10, 40)) == (255, 176, 0)
    levels = torch.zeros(64, 64, dtype=torch.uint8)
    levels[:32] = 1
    veiled = overlaid(picture, levels.numpy())
    assert veiled.getpixel((1, 63)) == (255, 255, 255)
    assert veiled.getpixel((1, 1)) != (255, 255, 255)

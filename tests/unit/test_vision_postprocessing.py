"""Post-processing of the vision expert: groups, overlaps, sizes, drawings and labels."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image
from transformers import EomtImageProcessorPil

from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.generated_text import GeneratedText, generate_text
from experts.vision.image_batches import ImageItem, InputImage, fit_size, run_in_groups
from experts.vision.masks import suppress_overlaps
from experts.vision.overlays import Detection, count_labels, draw_boxes, draw_segments, pluralize
from experts.vision.segmentation import UniversalSegmenter
from tests.tiny.image_files import to_media

pytestmark = pytest.mark.slow


class ActiveCall:
    cancelled = False

    def progress(self, fraction: float, message: str = "") -> None: ...


class CancelledCall(ActiveCall):
    cancelled = True


@pytest.mark.parametrize(
    ("singular", "plural"),
    [("cat", "cats"), ("person", "people"), ("box", "boxes"), ("berry", "berries"), ("wine glass", "wine glasses")],
)
def test_noun_is_pluralized(singular: str, plural: str) -> None:
    assert pluralize(singular) == plural


def test_labels_are_counted_most_frequent_first() -> None:
    assert count_labels(["dog", "cat", "cat"]) == "2 cats, 1 dog"
    assert count_labels([]) == "nothing"


def test_overlapping_boxes_are_suppressed_except_the_best() -> None:
    boxes = torch.tensor([[0, 0, 10, 10], [0, 0, 10, 9], [20, 20, 30, 30], [0, 0, 5, 5]]).float()
    assert suppress_overlaps(boxes, torch.tensor([0.9, 0.95, 0.8, 0.7])) == [1, 2, 3]
    assert suppress_overlaps(torch.zeros(0, 4), torch.zeros(0)) == []


def test_items_of_one_kind_are_computed_together_and_returned_in_order() -> None:
    groups: list[list[str]] = []

    def compute(items: Sequence[str]) -> list[str]:
        groups.append(list(items))
        return [item.upper() for item in items]

    assert run_in_groups(["a", "bb", "c", "dd"], len, compute, ActiveCall()) == ["A", "BB", "C", "DD"]
    assert groups == [["a", "c"], ["bb", "dd"]]


def test_cancelled_call_computes_no_group() -> None:
    def compute(items: Sequence[str]) -> list[str]:
        pytest.fail(f"computed {items}")

    assert run_in_groups(["a"], len, compute, CancelledCall()) == []


def test_size_is_scaled_down_in_its_proportions() -> None:
    assert fit_size((100, 50), 1_000_000) == (100, 50)
    assert fit_size((4000, 2000), 2_000_000) == (2000, 1000)


def test_boxes_are_drawn_on_a_copy() -> None:
    image = Image.new("RGB", (64, 64), "white")
    overlay = draw_boxes(image, [Detection("cat", 0.9, (10.0, 10.0, 50.0, 50.0))])
    assert image.getcolors() == [(64 * 64, (255, 255, 255))]
    assert overlay.getpixel((10, 40)) == (255, 176, 0)


def test_segments_are_drawn_on_a_copy() -> None:
    image = Image.new("RGB", (64, 64), "white")
    levels = torch.zeros(64, 64, dtype=torch.uint8)
    levels[:32] = 1
    overlay = draw_segments(image, levels.numpy())
    assert image.getcolors() == [(64 * 64, (255, 255, 255))]
    assert overlay.getpixel((1, 63)) == (255, 255, 255)
    assert overlay.getpixel((1, 1)) != (255, 255, 255)


@pytest.mark.parametrize(("label", "segments"), [(119, 1), (0, 2)])
def test_surroundings_of_coco_have_one_segment_and_things_one_each(label: int, segments: int) -> None:
    config = SimpleNamespace(num_labels=133, id2label={index: f"class {index}" for index in range(133)})
    checkpoint = Checkpoint("org/coco_panoptic", Path(), "", torch.device("cpu"), torch.float32)
    processor: Any = EomtImageProcessorPil(size={"shortest_edge": 64, "longest_edge": 64}, do_pad=True)
    segmenter = UniversalSegmenter(checkpoint, SimpleNamespace(config=config), processor)
    classes = torch.full((1, 2, 134), -10.0)
    classes[..., label] = 10.0
    masks = torch.full((1, 2, 16, 16), -10.0)
    masks[0, 0, :, :6], masks[0, 1, :, 10:] = 10.0, 10.0
    image = Image.new("RGB", (64, 64))
    item = ImageItem(InputImage(to_media(image), image.size, image), {}, {"threshold": 0.5})
    outputs = SimpleNamespace(class_queries_logits=classes, masks_queries_logits=masks)
    assert len(segmenter.find_segments((outputs, item)).segments) == segments


class ScriptedModel:
    """A model whose next token has the probability 0.5 at each step, and ends the text after two tokens."""

    device, dtype = torch.device("cpu"), torch.float32
    config = SimpleNamespace(is_encoder_decoder=False)
    generation_config = SimpleNamespace(eos_token_id=2)

    def generate(
        self, *, input_ids: torch.Tensor, max_new_tokens: int, logits_processor: Sequence[Any], **_: Any
    ) -> torch.Tensor:
        for step in range(max_new_tokens):
            scores = torch.full((len(input_ids), 3), 0.25)
            scores[:, 2 if step >= 2 else 1] = 0.5
            scores = scores.log()
            for processor in logits_processor:
                scores = processor(input_ids, scores)
            input_ids = torch.cat([input_ids, scores.argmax(-1, keepdim=True)], dim=1)
        return input_ids


def generate_scripted(max_new_tokens: int) -> list[GeneratedText]:
    inputs = {"input_ids": torch.tensor([[0], [0]])}
    return generate_text(ScriptedModel(), inputs, ActiveCall(), max_new_tokens=max_new_tokens, model_id="org/name")


def test_probability_of_a_text_includes_the_token_that_ends_it() -> None:
    first, second = generate_scripted(5)
    assert first.tokens == [1, 1]
    assert first.score == pytest.approx(0.125)
    assert second == first


def test_probability_of_a_text_cut_short_is_that_of_its_tokens() -> None:
    first, _ = generate_scripted(2)
    assert first.tokens == [1, 1]
    assert first.score == pytest.approx(0.25)


def test_scores_of_generated_tokens_are_copied_from_the_device_once(monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[torch.Tensor] = []
    copy = torch.Tensor.cpu

    def counted(tensor: torch.Tensor) -> torch.Tensor:
        copies.append(tensor)
        return copy(tensor)

    monkeypatch.setattr(torch.Tensor, "cpu", counted)
    generate_scripted(20)
    assert len(copies) == 1

"""Decoded input images, and batches of those with the same shape after preprocessing."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

from experts.host.handler import Batching, Call, Inputs, Media, Parameters
from experts.host.media import derive_name, open_image
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.devices import inference_context
from experts.torch_host.generation import move_to_device
from experts.torch_host.non_finite import require_finite
from experts.torch_host.padding import launch_passes
from experts.torch_host.torch_handler import ReadResults, TorchHandler, copy_to_host
from services.common.errors import InvalidRequest

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

T = TypeVar("T")
R = TypeVar("R")

Size = tuple[int, int]
"""Width and height."""

_MIN_SIDE = 8
_MAX_ASPECT_RATIO = 30
"""Maximum ratio of sides: models scale an image by its shorter side."""
_MAX_RETAINED_PIXELS = 16_000_000
"""Larger images are decoded twice instead of being held in memory until the result is drawn."""
_CHANNELS = 3
_MODEL_INPUTS = ("pixel_values", "flattened_patches", "attention_mask", "reshaped_input_sizes")
"""Processor outputs passed to the model. Padding masks are omitted, since images are not padded."""
_BATCH_PIXELS = 8_000_000
"""Maximum pixels of a batch after preprocessing: 160 small images, or seven large ones."""


@dataclass(frozen=True)
class InputImage:
    """Input image of one call, upright and in RGB."""

    media: Media
    size: Size
    decoded: "Image | None"

    @classmethod
    def decode(cls, media: Media, *, port: str = "image") -> "InputImage":
        """Decodes an image file.

        Raises:
            InvalidRequest: naming the port; it is not an image, or too small, too large or too narrow.
        """
        image = open_image(media, port=port)
        _check_size(image.size, media, port)
        return cls(media, image.size, image if image.width * image.height <= _MAX_RETAINED_PIXELS else None)

    @property
    def height_and_width(self) -> Size:
        """Size in the order of post-processing functions."""
        return self.size[1], self.size[0]

    def load(self) -> "Image":
        """Returns the decoded image, decoded again if it was not retained."""
        return self.decoded or open_image(self.media)

    def output_name(self, suffix: str) -> str:
        """Returns the file name for an image derived from this one."""
        return derive_name(self.media, suffix, "png")


@dataclass(frozen=True)
class ImageItem:
    """Image of one call, preprocessed for the model."""

    image: InputImage
    tensors: Mapping[str, "torch.Tensor"]
    parameters: Parameters

    @property
    def shape(self) -> Hashable:
        return tuple(value.shape for value in self.tensors.values())

    @property
    def pixels(self) -> int:
        """Pixels after preprocessing."""
        return max(value.numel() for value in self.tensors.values()) // _CHANNELS


class ImageHandler(TorchHandler):
    """Base class of handlers of images, which computes images of the same shape together.

    A handler defines `forward_batch` and `read_batch`, or else `run`.
    """

    batching = Batching(budget=_BATCH_PIXELS)

    def __init__(self, checkpoint: Checkpoint, model: Any, processor: Any) -> None:
        super().__init__(checkpoint, model)
        self.processor = processor

    def prepare(self, inputs: Inputs, parameters: Parameters) -> ImageItem:
        return self.preprocess(InputImage.decode(inputs["image"]), parameters)

    def preprocess(self, image: InputImage, parameters: Parameters) -> ImageItem:
        features = self.processor(images=image.load(), return_tensors="pt")
        return ImageItem(image, {name: value for name, value in features.items() if name in _MODEL_INPUTS}, parameters)

    def cost(self, item: ImageItem) -> float:
        return item.pixels

    def compute(self, items: Sequence[ImageItem], call: Call) -> ReadResults:
        passes = launch_passes(
            [[item] for item in items], lambda _: 1, self.forward_batch, call, kind=lambda item: item.shape
        )
        return lambda: [result for (result,) in passes.read(self.read_batch)]

    def forward_batch(self, items: Sequence[Any]) -> Any:
        """Returns the model's output for images of one shape, by copy_to_host or copy_outputs."""
        raise NotImplementedError

    def read_batch(self, items: Sequence[Any], output: Any) -> Sequence[Any]:
        """Returns the result of each of these images, once the device has finished."""
        raise NotImplementedError

    def forward(self, items: Sequence[ImageItem], **extra: Any) -> Any:
        """Returns the model's output for images of one shape; extra inputs are passed along."""
        batch = {**stack_tensors([item.tensors for item in items]), **extra}
        with inference_context(self.model_id):
            return self.model(**move_to_device(batch, self.model))


def copy_outputs(output: Any, names: Iterable[str]) -> SimpleNamespace:
    """Returns copies of the named parts of a model's output on the CPU, by copy_to_host."""
    return SimpleNamespace(**{name: copy_to_host(getattr(output, name)) for name in names})


def require_finite_outputs(output: SimpleNamespace, model_id: str) -> SimpleNamespace:
    """Returns the output unchanged.

    Raises:
        ModelFailed: a value is not finite.
    """
    for part in vars(output).values():
        require_finite(part, model_id)
    return output


def run_in_groups(
    items: Sequence[T], kind: Callable[[T], Hashable], compute: Callable[[Sequence[T]], Sequence[R]], call: Call
) -> list[R]:
    """Returns compute's result for each item, in order; items of one kind are computed together.

    Images are grouped by shape because padding would change the results. Returns an empty list if the call is
    cancelled meanwhile.
    """
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for index, item in enumerate(items):
        groups[kind(item)].append(index)
    results: dict[int, R] = {}
    for indices in groups.values():
        if call.cancelled:
            return []
        results |= zip(indices, compute([items[index] for index in indices]), strict=True)
    return [results[index] for index in range(len(items))]


def stack_tensors(rows: Sequence[Mapping[str, "torch.Tensor"]]) -> dict[str, "torch.Tensor"]:
    """Concatenates batches of one item to one batch."""
    import torch

    return {name: torch.cat([row[name] for row in rows]) for name in rows[0]}


def fit_size(size: Size, max_pixels: float) -> Size:
    """Scales a size down to at most so many pixels, in its proportions."""
    scale = min(1.0, (max_pixels / (size[0] * size[1])) ** 0.5)
    return max(1, int(size[0] * scale)), max(1, int(size[1] * scale))


def _check_size(size: Size, media: Media, port: str) -> None:
    shorter, longer = sorted(size)
    actual = f"{media.name} has {size[0]} x {size[1]} pixels"
    if shorter < _MIN_SIDE:
        raise InvalidRequest(
            f"{actual}; the minimum is {_MIN_SIDE} x {_MIN_SIDE}", port=port, remedy="send a larger image"
        )
    if longer > _MAX_ASPECT_RATIO * shorter:
        raise InvalidRequest(
            f"{actual}; an image may be at most {_MAX_ASPECT_RATIO} times as long as it is wide",
            port=port,
            remedy="crop it, or send parts of it",
        )

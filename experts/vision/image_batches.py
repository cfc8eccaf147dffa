"""Pictures as models see them, and batches of those that have one shape."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from experts.host.handler import Batching, Call, Inputs, Media, Parameters
from experts.host.media import open_image, renamed
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.devices import inference_context
from experts.torch_host.generation import move_to_device
from experts.torch_host.non_finite import require_finite
from experts.torch_host.torch_handler import TorchHandler
from services.common.errors import InvalidRequest

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

T = TypeVar("T")
R = TypeVar("R")

Size = tuple[int, int]
"""Width and height."""

_SMALLEST = 8
_LONGEST = 30
"""Times as long as wide: models scale a picture by its shorter side."""
_KEPT = 16_000_000
"""Pixels from which on a picture is decoded twice rather than kept while it waits."""
_CHANNELS = 3
_TAKEN = ("pixel_values", "flattened_patches", "attention_mask", "reshaped_input_sizes")
"""Of what a processor gives. Masks of padding are left out, since nothing is padded."""
_BUDGET = 8_000_000
"""Pixels of one batch, as the model sees them: 160 small pictures, or seven large ones."""


@dataclass(frozen=True)
class Scene:
    """One caller's picture, upright and in RGB."""

    media: Media
    size: Size
    kept: "Image | None"

    @classmethod
    def of(cls, media: Media, *, port: str = "image") -> "Scene":
        """Decodes it.

        Raises:
            InvalidRequest: names the port; it is none, or too small, too large or too narrow.
        """
        picture = open_image(media, port=port)
        _check(picture.size, media, port)
        return cls(media, picture.size, picture if picture.width * picture.height <= _KEPT else None)

    @property
    def rows_and_columns(self) -> Size:
        """Its size as models count."""
        return self.size[1], self.size[0]

    def picture(self) -> "Image":
        return self.kept or open_image(self.media)

    def named(self, suffix: str) -> str:
        """A name for a picture made of it."""
        return renamed(self.media, suffix, "png")


@dataclass(frozen=True)
class Seen:
    """One caller's picture, as the model takes it."""

    scene: Scene
    tensors: Mapping[str, "torch.Tensor"]
    parameters: Parameters

    @property
    def shape(self) -> Hashable:
        return tuple(value.shape for value in self.tensors.values())

    @property
    def pixels(self) -> int:
        """How many the model sees."""
        return max(value.numel() for value in self.tensors.values()) // _CHANNELS


class Viewer(TorchHandler):
    """A model that looks at pictures; what it finds in a batch of one shape is its own affair."""

    batching = Batching(budget=_BUDGET)

    def __init__(self, checkpoint: Checkpoint, model: Any, processor: Any) -> None:
        super().__init__(checkpoint, model)
        self.processor = processor

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Seen:
        return self.seen(Scene.of(inputs["image"]), parameters)

    def seen(self, scene: Scene, parameters: Parameters) -> Seen:
        given = self.processor(images=scene.picture(), return_tensors="pt")
        return Seen(scene, {name: value for name, value in given.items() if name in _TAKEN}, parameters)

    def cost(self, item: Seen) -> float:
        return item.pixels

    def run(self, items: Sequence[Seen], call: Call) -> Sequence[Any]:
        return alike(items, lambda item: item.shape, self.look, call)

    def look(self, items: Sequence[Seen]) -> Sequence[Any]:
        """What is found in pictures of one shape, on the device's thread."""
        raise NotImplementedError

    def computed(self, items: Sequence[Seen], **more: Any) -> Any:
        """The model's output for pictures of one shape; more is added to its input."""
        with inference_context(self.model_id):
            return self.model(**move_to_device({**stacked([item.tensors for item in items]), **more}, self.model))

    def plain(self, output: Any, *names: str, place: int | None = None) -> Any:
        """Those parts of an output as they would be on a CPU; of one picture of the batch, or of all.

        Raises:
            ModelFailed: they are no numbers.
        """
        from types import SimpleNamespace

        where = slice(None) if place is None else slice(place, place + 1)
        parts = {name: getattr(output, name)[where].float().cpu() for name in names}
        return SimpleNamespace(**{name: require_finite(part, self.model_id) for name, part in parts.items()})


def alike(
    items: Sequence[T], kind: Callable[[T], Hashable], compute: Callable[[Sequence[T]], Sequence[R]], call: Call
) -> list[R]:
    """What compute gives for each item, those of one kind together.

    Padding pictures to one shape would change what is found in them. Nothing if meanwhile nobody waits any more.
    """
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for place, item in enumerate(items):
        groups[kind(item)].append(place)
    results: dict[int, R] = {}
    for places in groups.values():
        if call.cancelled:
            return []
        results |= zip(places, compute([items[place] for place in places]), strict=True)
    return [results[place] for place in range(len(items))]


def stacked(rows: Sequence[Mapping[str, "torch.Tensor"]]) -> dict[str, "torch.Tensor"]:
    """Batches of one as one batch."""
    import torch

    return {name: torch.cat([row[name] for row in rows]) for name in rows[0]}


def fitted(size: Size, pixels: float) -> Size:
    """The size, or in its proportions one with that many pixels at most."""
    scale = min(1.0, (pixels / (size[0] * size[1])) ** 0.5)
    return max(1, int(size[0] * scale)), max(1, int(size[1] * scale))


def _check(size: Size, media: Media, port: str) -> None:
    shorter, longer = sorted(size)
    what = f"{media.name} has {size[0]} x {size[1]} pixels"
    if shorter < _SMALLEST:
        raise InvalidRequest(
            f"{what}: nothing can be seen in fewer than {_SMALLEST} x {_SMALLEST}",
            port=port,
            remedy="send a larger picture",
        )
    if longer > _LONGEST * shorter:
        raise InvalidRequest(
            f"{what}: a picture may be {_LONGEST} times as long as it is wide", port=port, remedy="send parts of it"
        )

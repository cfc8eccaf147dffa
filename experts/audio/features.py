"""Features of a recording's windows: extracted on a CPU thread when a call is prepared, stacked when a batch runs."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from experts.host.handler import Call
from experts.torch_host.generation import move_to_device
from experts.torch_host.padding import Passes, launch_passes

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    Samples = NDArray[np.float32]


@dataclass(frozen=True)
class Window:
    """Part of a recording as input of a model."""

    features: "Mapping[str, torch.Tensor]"
    """A batch of one, as the model's feature extractor returns it."""
    length: int
    """Number of samples."""

    @property
    def shape(self) -> Hashable:
        """Shapes of the features. Not all models mask padding, so only windows of one shape share a forward pass."""
        return tuple((name, tuple(values.shape)) for name, values in self.features.items())


W = TypeVar("W", bound=Window)


def extract_window(extractor: Any, samples: "Samples") -> Window:
    """Returns the features of a window, which depend on its samples alone, not on other windows.

    Args:
        extractor: feature extractor of transformers.
        samples: at the sampling rate of the extractor, and no longer than its maximum.
    """
    features = extractor([samples], sampling_rate=int(extractor.sampling_rate), return_tensors="pt")
    return Window(dict(features), len(samples))


def stack_features(windows: Sequence[Window], model: Any) -> "dict[str, torch.Tensor]":
    """Returns the features of windows of one shape as a batch on the model's device, in its dtype."""
    import torch

    names = windows[0].features
    return move_to_device({name: torch.cat([window.features[name] for window in windows]) for name in names}, model)


def launch_windows(
    items: Sequence[Sequence[W]], forward: "Callable[[Sequence[W]], torch.Tensor]", call: Call, *, max_samples: int
) -> "Passes[W, torch.Tensor]":
    """Runs each window of each item in passes over windows of one shape, without reading the outputs."""

    def length(window: W) -> int:
        return window.length

    def shape(window: W) -> Hashable:
        return window.shape

    return launch_passes(items, length, forward, call, max_tokens=max_samples, kind=shape)


def sum_seconds(windows: Sequence[Window], rate: int) -> float:
    """Returns the total length of windows, in seconds."""
    return sum(window.length for window in windows) / rate

"""Soft edges: by a HED network with weights in safetensors, or by OpenCV."""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from experts.diffusion.maps.edges import draw_soft_edges, make_handler
from experts.diffusion.maps.map_handler import MapHandler
from experts.host.handler import Handler
from experts.torch_host.checkpoint import Checkpoint
from services.common.errors import FailedPrecondition

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

OPENCV_MODEL = "opencv/soft-edges"
"""Model id of the OpenCV implementation, which has no weights."""
_WEIGHT = re.compile(r"block(\d+)\.convs\.(\d+)\.weight")


def hed_control(model_id: str, device: str) -> Handler:
    """Loads a HED network from safetensors, or OpenCV's edges.

    The published weights are pickles, which are not loaded; after conversion they must have the same names.
    """
    from safetensors.torch import load_file

    if model_id == OPENCV_MODEL:
        return make_handler(draw_soft_edges, "soft-edges")
    checkpoint = Checkpoint.fetch(model_id, device)
    files = sorted(checkpoint.folder.glob("*.safetensors"))
    try:
        model = build_network(load_file(files[0]))
    except (KeyError, RuntimeError, IndexError) as error:
        raise FailedPrecondition(
            f"{model_id} is not a HED network",
            reason="LOAD_FAILED",
            remedy="choose a network with norm, block1 to block5 and their convs and projection, like ControlNet's",
        ) from error
    return HedMap(checkpoint, model.to(checkpoint.device).eval())  # in float32, because the model is small


def build_network(weights: "Mapping[str, torch.Tensor]") -> Any:
    """Builds the network of convolution blocks, each with its own edge map; the weights determine depth and widths."""
    import torch
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        def __init__(self, widths: Sequence[int]) -> None:
            super().__init__()
            pairs = pairwise(widths)
            self.convs = nn.ModuleList(nn.Conv2d(before, after, 3, padding=1) for before, after in pairs)
            self.projection = nn.Conv2d(widths[-1], 1, 1)

        def forward(self, pixels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            for conv in self.convs:
                pixels = functional.relu(conv(pixels))
            return pixels, self.projection(pixels)

    class Hed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.Parameter(torch.zeros(1, 3, 1, 1))
            self.depth = 0
            for number, widths in sorted(_read_channels(weights).items()):
                self.add_module(f"block{number}", Block(widths))
                self.depth = number

        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            size, edge_maps, features = pixels.shape[-2:], [], pixels - self.norm
            for number in range(1, self.depth + 1):
                if number > 1:
                    features = functional.max_pool2d(features, 2, ceil_mode=True)
                features, edge_map = self.get_submodule(f"block{number}")(features)
                edge_maps.append(functional.interpolate(edge_map, size, mode="bilinear", align_corners=False))
            return torch.stack(edge_maps).mean(0).sigmoid()

    model = Hed()
    model.load_state_dict(weights)
    return model


def _read_channels(weights: "Mapping[str, torch.Tensor]") -> dict[int, list[int]]:
    """Returns for each block the channels before its first convolution and after each convolution."""
    channels: dict[int, list[int]] = {}
    for name in sorted(weights):
        if match := _WEIGHT.fullmatch(name):
            after, before = weights[name].shape[:2]
            channels.setdefault(int(match[1]), [int(before)]).append(int(after))
    if not channels:
        raise KeyError("block1")
    return channels


class HedMap(MapHandler):
    """Draws soft edges with a HED network."""

    suffix = "soft-edges"

    def predict(self, picture: "Image") -> Any:
        import numpy as np
        import torch

        pixels = torch.from_numpy(np.array(picture, dtype=np.float32)).permute(2, 0, 1)[None]
        return self.model(pixels.to(next(self.model.parameters()).device))[0, 0].cpu().numpy()

    def draw(self, prediction: Any, picture: "Image") -> "Image":  # noqa: ARG002  # the prediction has the picture's size
        import numpy as np
        from PIL import Image

        return Image.fromarray((self.check_finite(prediction) * 255).round().astype(np.uint8)).convert("RGB")

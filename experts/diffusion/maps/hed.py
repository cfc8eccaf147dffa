"""Soft edges: by a HED network where there are weights in safetensors, else by OpenCV."""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from experts.diffusion.maps.edges import drawer, soft_edges
from experts.diffusion.maps.map_maker import Drawer
from experts.host.handler import Handler
from experts.torch_host.checkpoint import Checkpoint
from services.common.errors import FailedPrecondition

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

CLASSICAL = "opencv/soft-edges"
"""The card that says that there is no network behind it."""
_WEIGHT = re.compile(r"block(\d+)\.convs\.(\d+)\.weight")


def hed_control(model_id: str, device: str) -> Handler:
    """The weights that are published are pickles, which are not loaded; converted, they are taken as they are named."""
    from safetensors.torch import load_file

    if model_id == CLASSICAL:
        return drawer(soft_edges, "soft-edges")
    checkpoint = Checkpoint.fetch(model_id, device)
    files = sorted(checkpoint.folder.glob("*.safetensors"))
    try:
        model = network(load_file(files[0]))
    except (KeyError, RuntimeError, IndexError) as error:
        raise FailedPrecondition(
            f"{model_id} is no HED network",
            reason="LOAD_FAILED",
            remedy="take one with norm, block1 to block5 and their convs and projection, as ControlNet's is",
        ) from error
    return SoftEdges(checkpoint, model.to(checkpoint.device).eval())  # in float32: it is small


def network(weights: "Mapping[str, torch.Tensor]") -> Any:
    """Blocks of convolutions, each with its own view of the edges, as wide and deep as the weights say."""
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
            for number, widths in sorted(_widths(weights).items()):
                self.add_module(f"block{number}", Block(widths))
                self.depth = number

        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            size, views, here = pixels.shape[-2:], [], pixels - self.norm
            for number in range(1, self.depth + 1):
                if number > 1:
                    here = functional.max_pool2d(here, 2, ceil_mode=True)
                here, view = self.get_submodule(f"block{number}")(here)
                views.append(functional.interpolate(view, size, mode="bilinear", align_corners=False))
            return torch.stack(views).mean(0).sigmoid()

    model = Hed()
    model.load_state_dict(weights)
    return model


def _widths(weights: "Mapping[str, torch.Tensor]") -> dict[int, list[int]]:
    """By block the channels before its first convolution and after each."""
    found: dict[int, list[int]] = {}
    for name in sorted(weights):
        if match := _WEIGHT.fullmatch(name):
            after, before = weights[name].shape[:2]
            found.setdefault(int(match[1]), [int(before)]).append(int(after))
    if not found:
        raise KeyError("block1")
    return found


class SoftEdges(Drawer):
    """Edges as a network sees them."""

    suffix = "soft-edges"

    def look(self, picture: "Image") -> Any:
        import numpy as np
        import torch

        pixels = torch.from_numpy(np.array(picture, dtype=np.float32)).permute(2, 0, 1)[None]
        return self.model(pixels.to(next(self.model.parameters()).device))[0, 0].cpu().numpy()

    def draw(self, found: Any, picture: "Image") -> "Image":  # noqa: ARG002  # it is as large as the picture
        import numpy as np
        from PIL import Image

        return Image.fromarray((self.checked(found) * 255).round().astype(np.uint8)).convert("RGB")

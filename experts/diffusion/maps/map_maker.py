"""What the makers of control maps share: a picture in, a map of its size out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experts.diffusion.image_size import MOST_PIXELS
from experts.host.handler import UNBATCHED, Call, Inputs, Media, Outputs, Parameters
from experts.host.media import open_image, png, renamed
from experts.torch_host.devices import inference_context
from experts.torch_host.torch_handler import TorchHandler
from services.common.errors import ModelFailed

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True)
class Seen:
    """A picture of which a map is drawn."""

    picture: "Image"
    name: str


class Drawer(TorchHandler):
    """A network that draws a map of each picture."""

    batching = UNBATCHED
    suffix = "map"

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Seen:  # noqa: ARG002  # maps have no parameters
        return Seen(opened(inputs["image"]), renamed(inputs["image"], self.suffix, "png"))

    def cost(self, item: Seen) -> float:
        return float(item.picture.width * item.picture.height)

    def run(self, items: Sequence[Seen], call: Call) -> list[tuple[Any, Seen]]:
        """Nothing if meanwhile nobody waits any more."""
        if call.cancelled:
            return []
        with inference_context(self.model_id):
            return [(self.look(item.picture), item) for item in items]

    def finish(self, raw: tuple[Any, Seen]) -> Outputs:
        found, seen = raw
        return {"image": png(self.draw(found, seen.picture), seen.name)}

    def look(self, picture: "Image") -> Any:
        """What the network finds, as numpy arrays or plain Python; on the device's thread."""
        raise NotImplementedError

    def draw(self, found: Any, picture: "Image") -> "Image":
        """The map of that; on a CPU thread."""
        raise NotImplementedError

    def checked(self, values: Any) -> Any:
        """The values, an array, if they are numbers.

        Raises:
            ModelFailed: some are not finite.
        """
        import numpy as np

        if not np.isfinite(values).all():
            raise ModelFailed(
                f"{self.model_id} failed on this input: the map is not finite",
                remedy="try another picture, or let the operator run the model in float32 (EXPERT_DEVICES)",
            )
        return values


def opened(media: Media) -> "Image":
    """The picture in RGB; a huge one smaller, since a map steers pictures of a few megapixels at most."""
    picture = open_image(media)
    if picture.width * picture.height > MOST_PIXELS:
        scale = (MOST_PIXELS / (picture.width * picture.height)) ** 0.5
        picture = picture.resize((max(1, int(picture.width * scale)), max(1, int(picture.height * scale))))
    return picture

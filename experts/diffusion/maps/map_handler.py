"""Handler base class of control maps: a picture as input, a map of the same size as output."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experts.diffusion.image_size import MAX_PIXELS
from experts.host.handler import UNBATCHED, Call, Inputs, Media, Outputs, Parameters
from experts.host.media import derive_name, open_image, png
from experts.torch_host.devices import inference_context
from experts.torch_host.torch_handler import TorchHandler
from services.common.errors import ModelFailed

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True)
class MapItem:
    """A picture with the file name of its map."""

    picture: "Image"
    name: str


class MapHandler(TorchHandler):
    """Runs a network that draws a map of each picture; subclasses define predict and draw."""

    batching = UNBATCHED
    suffix = "map"

    def prepare(self, inputs: Inputs, parameters: Parameters) -> MapItem:  # noqa: ARG002  # maps have no parameters
        return MapItem(open_picture(inputs["image"]), derive_name(inputs["image"], self.suffix, "png"))

    def cost(self, item: MapItem) -> float:
        return float(item.picture.width * item.picture.height)

    def run(self, items: Sequence[MapItem], call: Call) -> list[tuple[Any, MapItem]]:
        """Returns the predictions, or an empty list if the call is cancelled."""
        if call.cancelled:
            return []
        with inference_context(self.model_id):
            return [(self.predict(item.picture), item) for item in items]

    def finish(self, raw: tuple[Any, MapItem]) -> Outputs:
        prediction, item = raw
        return {"image": png(self.draw(prediction, item.picture), item.name)}

    def predict(self, picture: "Image") -> Any:
        """Runs the network on the device's thread; returns numpy arrays or plain Python objects."""
        raise NotImplementedError

    def draw(self, prediction: Any, picture: "Image") -> "Image":
        """Draws the map of a prediction, on a CPU thread."""
        raise NotImplementedError

    def check_finite(self, values: Any) -> Any:
        """Returns an array if all its values are finite.

        Raises:
            ModelFailed: some values are not finite.
        """
        import numpy as np

        if not np.isfinite(values).all():
            raise ModelFailed(
                f"{self.model_id} failed on this input: the map is not finite",
                remedy="try another picture, or ask the operator to run the model in float32 (EXPERT_DEVICES)",
            )
        return values


def open_picture(media: Media) -> "Image":
    """Returns the picture in RGB, scaled down to the maximum size of generated pictures."""
    picture = open_image(media)
    if picture.width * picture.height > MAX_PIXELS:
        scale = (MAX_PIXELS / (picture.width * picture.height)) ** 0.5
        picture = picture.resize((max(1, int(picture.width * scale)), max(1, int(picture.height * scale))))
    return picture

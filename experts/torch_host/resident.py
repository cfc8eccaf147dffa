"""What every handler with a torch model says of itself to the host."""

from typing import Any, ClassVar

from experts.host.handler import Batching
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.devices import TorchDevices


class Resident:
    """A model in memory; the handlers of the torch modalities stand on it."""

    batching: ClassVar[Batching] = Batching(padded=True)
    """What differs in length is padded; a handler that has no batches says UNBATCHED."""

    def __init__(self, checkpoint: Checkpoint, model: Any) -> None:
        self.model_id, self.revision = checkpoint.model_id, checkpoint.commit
        self.model = model

    def close(self) -> None:
        """Lets go of the weights, and gives the GPU's memory back."""
        self.model = None
        TorchDevices().release()

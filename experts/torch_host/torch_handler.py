"""Base class of handlers with a torch model."""

from typing import Any

from experts.host import load_context
from experts.host.handler import Batching, Handler
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.devices import TorchDevices
from experts.torch_host.padding import MAX_PASS_TOKENS


class TorchHandler(Handler):
    """Base class of the torch modalities' handlers: one model in memory."""

    batching = Batching(padded=True)
    """Items are padded by default; handlers without batching set UNBATCHED."""

    def __init__(self, checkpoint: Checkpoint, model: Any) -> None:
        self.model_id, self.revision = checkpoint.model_id, checkpoint.commit
        self.model = model
        self.max_pass_tokens = int(MAX_PASS_TOKENS * load_context.current().batch_scale)
        """Maximum tokens in one forward pass of an encoder, including padding."""

    def close(self) -> None:
        """Releases the weights and the GPU's memory."""
        self.model = None
        TorchDevices().release()

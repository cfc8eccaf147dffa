"""Interface between a model and the host: prepare one input, run a batch, finish one output.

A loader returns a Handler; the host decides when each step runs and on which thread. Inputs and outputs are plain
Python values by port name: str for text, parsed JSON for json, Media for the rest, and a list of these for a port that
takes many values.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import Any, Protocol

from services.common import strict_json

Inputs = Mapping[str, Any]
Parameters = Mapping[str, Any]
Outputs = Mapping[str, Any]

NO_ANSWER = "I found no answer."
"""Text of the result of a question without an answer: no claim about the text, which may well contain one."""


@dataclass(frozen=True)
class Media:
    """Encoded bytes of an image, audio, video or table file."""

    content: bytes
    media_type: str
    """IANA media type; of an input it was detected from the content."""
    name: str
    """File name such as "faces.png"; never a path."""


@dataclass(frozen=True)
class Batching:
    """Batch limits of a model. Which further limits apply depends on the device (devices.batch_scale)."""

    items: float = inf
    """Maximum number of items in a batch, which no setting raises; 1 disables batching."""
    budget: float = inf
    """Maximum cost of a batch on a device with a batch scale of 1, in the unit of the handler's cost."""
    padded: bool = False
    """Whether items are padded to the longest: a batch then costs its longest item times the number of items."""

    def cost(self, costs: Sequence[float]) -> float:
        """Returns the cost of a batch of items with the given costs."""
        return max(costs) * len(costs) if self.padded else sum(costs)


UNBATCHED = Batching(items=1)


class Call(Protocol):
    """The calls of one batch, as seen by the model that runs it."""

    @property
    def cancelled(self) -> bool:
        """Whether every caller of the batch has left: the model may stop."""

    def progress(self, fraction: float, message: str = "") -> None:
        """Reports progress from 0 to 1; callable from any thread."""


class UnbatchedCall(Call, Protocol):
    """One call, as seen by the RemoteHandler that runs it."""

    def add_llm_usage(self, input_tokens: int, output_tokens: int, cost: float) -> None:
        """Adds what an LLM used; on the event loop.

        Args:
            input_tokens: of the prompt.
            output_tokens: of the answer.
            cost: in the currency of the deployment's prices; 0 without a price.
        """


@dataclass(frozen=True)
class UnavailableReason:
    """Why a loaded model cannot answer at present."""

    message: str
    remedy: str


class ModelHandler(ABC):
    """What every loaded model declares, and the steps that all have. Derive from Handler or RemoteHandler.

    A step raises InvalidRequest, naming the port, for input that the model cannot process.
    """

    batching: Batching = Batching()
    """Batch limits."""
    revision: str = ""
    """The commit that was loaded; empty if it is not known."""
    memory_bytes: int = 0
    """Memory use; 0 if the host has to measure it."""
    shared_bytes: Mapping[str, int] = MappingProxyType({})
    """Bytes of models that it shares with others in the process, by a name for each. They are freed with the last model
    that names them, and are not a part of memory_bytes."""
    concurrent: bool = False
    """Whether the work runs in other processes or services: calls are not batched and do not wait for each other."""
    asynchronous: bool = False
    """Whether its device computes while the host does other work: Handler.launch is then used instead of `run`, and the
    next batch is launched before the results of the last one are fetched."""
    has_process: bool = False
    """Whether the model runs in a process of its own, which `kill` ends."""

    @property
    def unavailable_reason(self) -> UnavailableReason | None:
        """Why the model cannot answer at present; None if it can."""
        return None

    @abstractmethod
    def prepare(self, inputs: Inputs, parameters: Parameters) -> Any:
        """Converts one call's input to an item; runs on a CPU thread."""

    def cost(self, item: Any) -> float:  # noqa: ARG002  # by default, every item costs the same
        """Returns what the item adds to a batch, in the model's own unit (tokens, pixels, seconds)."""
        return 1.0

    def batch_key(self, item: Any, parameters: Parameters) -> Hashable:  # noqa: ARG002  # by default, only parameters
        """Returns what the items of a batch have in common, picklable; by default, all parameters of the call."""
        return strict_json.write(parameters)

    @abstractmethod
    def finish(self, raw: Any) -> Outputs:
        """Converts one result to outputs: scores to 4 decimals, boxes to 0.1 px, times to 1 ms; on a CPU thread."""

    def close(self) -> None:  # noqa: B027  # most models have nothing to free
        """Frees resources; called on the device's thread before the model is unloaded."""

    def kill(self, seconds: float) -> None:  # noqa: B027  # as above
        """Ends the model's own process if a batch has run in it for so long."""


class LaunchedBatch(Protocol):
    """A batch that the device computes while the host does other work."""

    def wait(self) -> None:
        """Waits until the device has finished; on any thread, also twice. Its errors are raised again by `fetch`."""

    def fetch(self) -> Sequence[Any]:
        """Returns one result per item, in order; on the device's thread."""


class Handler(ModelHandler):
    """A model that the host runs; if it is concurrent, `run` only waits for isolated calls (experts.host.isolation)."""

    @abstractmethod
    def run(self, items: Sequence[Any], call: Call) -> Sequence[Any]:
        """Runs a batch and returns one result per item, in order; runs on the device's thread.

        All items have the same batch key. If it raises, the items are run again one by one.
        """

    def launch(self, items: Sequence[Any], call: Call) -> LaunchedBatch:
        """Queues a batch on the device and returns without its results; otherwise as `run`.

        The device computes batches one after the other; at most two are queued.
        """
        raise NotImplementedError(f"{type(self).__name__} is declared asynchronous and has no launch")


class RemoteHandler(ModelHandler):
    """A model that runs in another service.

    Calls run concurrently on the event loop, each with its own caller in `services.common.call_context`. A call is
    cancelled when its caller leaves.
    """

    concurrent = True

    @abstractmethod
    def infer(self, item: Any, call: UnbatchedCall) -> Awaitable[Any]:
        """Returns the model's result for one item."""


@dataclass(eq=False)
class Single(Handler):
    """Handler of a plain function: one call after the other, without batching."""

    function: Callable[[Inputs, Parameters], Outputs]
    batching: Batching = UNBATCHED

    def prepare(self, inputs: Inputs, parameters: Parameters) -> tuple[Inputs, Parameters]:
        return inputs, parameters

    def run(self, items: Sequence[tuple[Inputs, Parameters]], call: Call) -> list[Outputs]:
        outputs = []
        for inputs, parameters in items:
            if call.cancelled:
                break
            outputs.append(self.function(inputs, parameters))
        return outputs

    def finish(self, raw: Outputs) -> Outputs:
        return raw


def single(function: Callable[[Inputs, Parameters], Outputs]) -> Handler:
    """Adapts a plain function of inputs and parameters to a Handler."""
    return Single(function)


Loader = Callable[[str, str], Handler | RemoteHandler]
"""Loads a model, given its id and a device ("cpu", "cuda:0"). Imports of heavy libraries belong inside it."""

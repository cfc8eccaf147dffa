"""Interface between a model and the host: prepare one input, run a batch, finish one output.

A loader returns a Handler; the host decides when each step runs and on which thread. Inputs and outputs are plain
Python values by port name: str for text, parsed JSON for json, Media for the rest, and a list of these for a port that
takes many values.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Protocol

Inputs = Mapping[str, Any]
Parameters = Mapping[str, Any]
Outputs = Mapping[str, Any]


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
    """Batch limits of a model; a Handler may declare them in an attribute `batching`."""

    items: int = 32
    """Maximum number of items in a batch; 1 disables batching."""
    budget: float = inf
    """Maximum cost of a batch, in the unit of the handler's cost."""
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


class Handler(Protocol):
    """A loaded model. Raises InvalidRequest, naming the port, for input that it cannot process.

    Optional attributes:
        batching: its Batching.
        revision: the commit that was loaded.
        close(): frees resources; called on the device's thread before the model is unloaded.
        concurrent: True if `run` only waits for isolated calls (experts.host.isolation): each call then runs unbatched
            and concurrently with others, on a CPU thread.
    """

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Any:
        """Converts one call's input to an item; runs on a CPU thread."""

    def cost(self, item: Any) -> float:
        """Returns what the item adds to a batch, in the model's own unit (tokens, pixels, seconds)."""

    def run(self, items: Sequence[Any], call: Call) -> Sequence[Any]:
        """Runs a batch and returns one result per item, in order; runs on the device's thread.

        All items have the same parameters. If it raises, the items are run again one by one.
        """

    def finish(self, raw: Any) -> Outputs:
        """Converts one result to outputs: scores to 4 decimals, boxes to 0.1 px, times to 1 ms; on a CPU thread."""


@dataclass(frozen=True)
class UnavailableReason:
    """Why a loaded model cannot answer at present; a handler may expose it in an attribute `unavailable_reason`."""

    message: str
    remedy: str


class RemoteHandler(Protocol):
    """A model that runs in another service: like a Handler, with an asynchronous `infer` instead of `run`.

    Calls are not batched. Many run concurrently on the event loop, each with its own caller in
    `services.common.call_context`. A call is cancelled when its caller leaves. It may have an `unavailable_reason`.
    """

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Any:
        """As Handler.prepare."""

    def cost(self, item: Any) -> float:
        """As Handler.cost; the host ignores it."""

    def infer(self, item: Any, call: Call) -> Awaitable[Any]:
        """Returns the model's result for one item."""

    def finish(self, raw: Any) -> Outputs:
        """As Handler.finish."""


@dataclass(frozen=True)
class Single:
    """Handler of a plain function: one call after the other, without batching."""

    function: Callable[[Inputs, Parameters], Outputs]
    batching: Batching = UNBATCHED

    def prepare(self, inputs: Inputs, parameters: Parameters) -> tuple[Inputs, Parameters]:
        return inputs, parameters

    def cost(self, item: Any) -> float:  # noqa: ARG002  # every call costs the same
        return 1.0

    def run(self, items: Sequence[tuple[Inputs, Parameters]], call: Call) -> list[Outputs]:
        outputs = []
        for inputs, parameters in items:
            if call.cancelled:
                break
            outputs.append(self.function(inputs, parameters))
        return outputs

    def finish(self, raw: Outputs) -> Outputs:
        return raw


def is_concurrent(handler: "Handler | RemoteHandler") -> bool:
    """Whether the handler's work runs in other processes, so that its calls need not wait for each other."""
    return bool(getattr(handler, "concurrent", False))


def single(function: Callable[[Inputs, Parameters], Outputs]) -> Handler:
    """Adapts a plain function of inputs and parameters to a Handler."""
    return Single(function)


Loader = Callable[[str, str], Handler | RemoteHandler]
"""Loads a model, given its id and a device ("cpu", "cuda:0"). Imports of heavy libraries belong inside it."""

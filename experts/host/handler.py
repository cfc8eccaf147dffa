"""What a model is to the host: read the input, run a batch, write the output.

A loader makes a Handler; the host decides when each of its steps runs and on which thread.
Inputs and outputs are plain Python, by port: str for text, parsed JSON for json, Media for the rest;
a list of these for a port that takes many.
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
    """Bytes of a picture, a recording, a video or a table, as they came or as they go."""

    content: bytes
    media_type: str
    """IANA media type; on the way in it was found by looking at the bytes."""
    name: str
    """What a person would call the file, such as "faces.png"; never a path."""


@dataclass(frozen=True)
class Batching:
    """How a model likes its batches: what a Handler may say of itself in an attribute `batching`."""

    items: int = 32
    """Most items in one batch; 1: never more than one."""
    budget: float = inf
    """Most that a batch may cost, in the unit of the handler's cost."""
    padded: bool = False
    """Every item is padded to the longest: a batch costs its longest item times their number."""

    def cost(self, costs: Sequence[float]) -> float:
        """What a batch of items of such costs comes to."""
        return max(costs) * len(costs) if self.padded else sum(costs)


ALONE = Batching(items=1)


class Call(Protocol):
    """The calls of one batch, as seen by the model that runs it."""

    @property
    def cancelled(self) -> bool:
        """Nobody waits for the batch any more: stop when convenient."""

    def progress(self, fraction: float, message: str = "") -> None:
        """Tells how far the batch is, 0 to 1; callable from any thread."""


class Handler(Protocol):
    """A loaded model. Raises InvalidRequest, naming the port, for input it cannot take.

    What it may have besides: `batching`, how it likes its batches; `revision`, the commit that was loaded;
    `close()`, called on the device's thread before it is let go; `concurrent`, True if `run` only waits for isolated
    calls (experts.host.isolation): then each call runs alone, next to others, on a CPU thread.
    """

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Any:
        """Reads one caller's input; on a CPU thread."""

    def cost(self, item: Any) -> float:
        """What the item adds to a batch, in the model's own unit (tokens, pixels, seconds)."""

    def run(self, items: Sequence[Any], call: Call) -> Sequence[Any]:
        """Runs a batch, one result per item, in order; on the device's thread.

        All items have the same parameters. If it raises, they are run again one by one.
        """

    def finish(self, raw: Any) -> Outputs:
        """Writes one caller's output: scores to 4 decimals, boxes to 0.1 px, times to 1 ms; on a CPU thread."""


@dataclass(frozen=True)
class Trouble:
    """Why a model cannot answer for now, though it is loaded: what a Handler may say of itself in `trouble`."""

    message: str
    remedy: str


class Elsewhere(Protocol):
    """A model that runs elsewhere: a Handler but for `run`, in whose place it is asked, on the event loop.

    Many calls are active at once, each with its own caller in `services.common.call_context`; there are no batches. A
    call that nobody waits for any more is cancelled. It may have a `trouble` besides.
    """

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Any:
        """As a Handler's."""

    def cost(self, item: Any) -> float:
        """As a Handler's; nobody weighs it."""

    def ask(self, item: Any, call: Call) -> Awaitable[Any]:
        """What the model makes of one item."""

    def finish(self, raw: Any) -> Outputs:
        """As a Handler's."""


@dataclass(frozen=True)
class Single:
    """A plain function as a Handler: one call after the other, no batching."""

    function: Callable[[Inputs, Parameters], Outputs]
    batching: Batching = ALONE

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


def is_concurrent(handler: "Handler | Elsewhere") -> bool:
    """Whether the work is done in other processes already, so that calls need not wait for each other."""
    return bool(getattr(handler, "concurrent", False))


def single(function: Callable[[Inputs, Parameters], Outputs]) -> Handler:
    """Adapts a plain function of inputs and parameters to a Handler."""
    return Single(function)


Loader = Callable[[str, str], Handler | Elsewhere]
"""Given a model id and a device ("cpu", "cuda:0"), loads it. Heavy imports stay inside."""

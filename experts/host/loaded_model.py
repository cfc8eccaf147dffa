"""A model in memory, with the batch limits and latencies learnt while it runs."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from math import inf

from experts.host.devices import BATCH_ITEMS
from experts.host.handler import Batching, Handler, RemoteHandler, UnavailableReason
from experts.host.latency_model import LatencyModel
from experts.host.metering import MeteredCall, Pool, cpus

_RECOVERY_FACTOR = 1.1


@dataclass(eq=False)
class LoadedModel:
    """A model in memory, with the batch limits and latencies learnt while it runs."""

    handler: Handler | RemoteHandler
    pool: Pool | None = None
    """The pool of the device it computes on, in addition to the CPUs."""
    latency_model: LatencyModel = field(default_factory=LatencyModel)
    batch_items: int = BATCH_ITEMS
    """Maximum number of items in a batch, if the handler has no lower limit."""
    batch_scale: float = 1.0
    """Factor of the handler's budget on its device."""
    max_batch_cost: float = inf
    """Maximum cost of a batch, lowered after a batch ran out of memory."""
    _is_warm: bool = False

    @property
    def batching(self) -> Batching:
        """The limits of its batches on its device."""
        own = self.handler.batching
        budget = min(own.budget * self.batch_scale, self.max_batch_cost)
        return Batching(min(own.items, self.batch_items), budget, own.padded)

    @property
    def revision(self) -> str:
        """The commit that was loaded; empty if the handler does not report it."""
        return self.handler.revision

    @property
    def memory_bytes(self) -> int:
        """Memory use as reported by the handler; 0 if the host has to measure it."""
        return self.handler.memory_bytes

    @property
    def shared_bytes(self) -> Mapping[str, int]:
        """Bytes of models that it shares with others, by name."""
        return self.handler.shared_bytes

    @property
    def unavailable_reason(self) -> UnavailableReason | None:
        """Why it cannot answer at present, if the handler reports a reason."""
        return self.handler.unavailable_reason

    def charge(self, call: MeteredCall) -> AbstractContextManager[object]:
        """Charges the computing time within the block to a call."""
        return _charge_both(cpus(), self.pool, call) if self.pool else cpus().charge(call)

    def record_batch(self, cost: float, seconds: float) -> None:
        """Records a batch that succeeded; the first one is ignored because engines warm up on it."""
        if self._is_warm:
            self.latency_model.observe(cost, seconds)
        self._is_warm = True
        self.max_batch_cost *= _RECOVERY_FACTOR  # a shortage of memory may have passed

    def record_out_of_memory(self, cost: float) -> None:
        """Halves the maximum batch cost after a batch of this cost ran out of memory."""
        self.max_batch_cost = cost / 2

    def end_process(self) -> None:
        """Ends the model's own process, if it has one."""
        if self.handler.has_process:
            self.close()

    def close(self) -> None:
        """Lets the handler clean up; called on the device's thread."""
        self.handler.close()


@contextmanager
def _charge_both(one: Pool, other: Pool, call: MeteredCall) -> Iterator[None]:
    with one.charge(call), other.charge(call):
        yield

"""What has failed several times in a row is left alone for a while: addresses that are gone, models that break.

No library does this: when half open, purgatory and pybreaker let everybody in, and a call that is cancelled counts
there as one that failed or did not.
"""

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple

import structlog

from protos.hugginggpt import semantic_conventions as names
from protos.hugginggpt.internal.v1.selector_pb2 import Avoid
from services.common import tracing
from services.common.change_signal import ChangeSignal
from services.orchestrator import metrics

log = structlog.get_logger(__name__)

FAILURES = 3
"""In a row, that open a circuit."""

COOL_DOWN_SECONDS, LONGEST_COOL_DOWN_SECONDS = 0.5, 30.0
"""How long it then stays open; twice as long after every probe that fails."""

PROBE_SECONDS = 5.0
"""How long a probe keeps others out; one that takes longer may just be a long call."""

FORGET_SECONDS = 600.0
"""After which failures count no more if nothing was heard since."""

Clock = Callable[[], float]


class Key(NamedTuple):
    """What a circuit is about: an address of an expert, or one of its models."""

    expert: str
    address: str = ""
    model: str = ""

    @property
    def kind(self) -> str:
        return "address" if self.address else "model"


class Circuit:
    """Failures in a row at one place; open, it lets in one call at a time, each after a longer time.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures = 0
        self._cool_down = COOL_DOWN_SECONDS
        self._shut_until: float | None = None
        self._probing = False
        self.heard = clock()
        self.reason = ""
        """Why the last call failed."""

    @property
    def open(self) -> bool:
        return self._shut_until is not None

    def seconds_left(self) -> float:
        """Until it lets a call in; 0: now."""
        return 0.0 if self._shut_until is None else max(0.0, self._shut_until - self._clock())

    def enter(self) -> None:
        """A call is made that it lets in; if it is open, that one is a probe and others wait for what comes of it."""
        if self.open:
            self._probing = True
            self._shut_until = self._clock() + PROBE_SECONDS

    def failed(self, reason: str, at_least: float = 0.0) -> None:
        """A call failed, and what this is about is to blame.

        Args:
            reason: in words.
            at_least: seconds for which another call would be in vain.
        """
        self.reason, self.heard = reason, self._clock()
        self._failures += 1
        if self._probing:
            self._cool_down = min(2 * self._cool_down, LONGEST_COOL_DOWN_SECONDS)
        if self._probing or (self._failures >= FAILURES and not self.open):
            self._probing = False
            self._shut_until = self._clock() + max(self._cool_down, at_least)

    def left(self) -> None:
        """A call ended that says nothing about it."""
        if self._probing:
            self._probing = False
            self._shut_until = self._clock()


class Circuits:
    """The circuits of all addresses and models of experts.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._circuits: dict[Key, Circuit] = {}
        self._changed = ChangeSignal()

    @property
    def all_closed(self) -> bool:
        """Nothing has failed lately."""
        return not self._circuits

    def seconds_left(self, key: Key) -> float:
        """Until it lets a call in; 0: now."""
        circuit = self._circuits.get(key)
        return circuit.seconds_left() if circuit else 0.0

    def is_open(self, key: Key) -> bool:
        """Whether the last calls there have failed, and none has succeeded since."""
        return key in self._circuits and self._circuits[key].open

    def reason(self, *keys: Key) -> str:
        """Why the first of them that is open is so."""
        return next((self._circuits[key].reason for key in keys if self.is_open(key)), "")

    def enter(self, *keys: Key) -> None:
        """A call is made that all of them let in."""
        for key in keys:
            if circuit := self._circuits.get(key):
                circuit.enter()

    def succeeded(self, key: Key) -> None:
        """What a call came to speaks for it."""
        if circuit := self._circuits.pop(key, None):
            self._tell(key, circuit, was_open=circuit.open, is_open=False)

    def failed(self, key: Key, reason: str, at_least: float = 0.0) -> None:
        """A call failed, and what it is about is to blame; another would be in vain for some seconds at least."""
        circuit = self._circuits.setdefault(key, Circuit(self._clock))
        was_open = circuit.open
        circuit.failed(reason, at_least)
        self._tell(key, circuit, was_open=was_open, is_open=circuit.open)

    def left(self, key: Key) -> None:
        """A call ended that says nothing about it."""
        if circuit := self._circuits.get(key):
            circuit.left()
            self._changed.notify()

    async def change(self, seconds: float) -> None:
        """Waits until something is known anew of any circuit, or so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    def avoid(self) -> list[Avoid]:
        """Those that let nobody in now, for the selector to rank last."""
        return [
            Avoid(model_id=key.model, expert=key.expert, address=key.address)
            for key, circuit in self._circuits.items()
            if circuit.seconds_left()
        ]

    def forget(self) -> None:
        """Drops what nobody has called in a long time, such as addresses of experts that moved."""
        before = self._clock() - FORGET_SECONDS
        for key, circuit in list(self._circuits.items()):
            if circuit.heard < before:
                self.succeeded(key)

    def _tell(self, key: Key, circuit: Circuit, *, was_open: bool, is_open: bool) -> None:
        if was_open or is_open:
            self._changed.notify()
        if was_open is is_open:
            return
        metrics.circuit_open.add(1 if is_open else -1, {"expert": key.expert, "kind": key.kind})
        facts = {names.EXPERT: key.expert, names.MODEL: key.model, names.CIRCUIT: key.kind}
        tracing.add_event(names.CIRCUIT_OPENED if is_open else names.CIRCUIT_CLOSED, facts)
        what = {name: value for name, value in key._asdict().items() if value}
        if is_open:
            log.warning("circuit opened", kind=key.kind, **what, reason=circuit.reason)
        else:
            log.info("circuit closed", kind=key.kind, **what)

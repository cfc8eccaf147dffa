"""Circuit breakers of expert addresses and models: after repeated failures calls stop for a growing time.

purgatory and pybreaker do not fit: when half open they let all calls through, and they count a cancelled call as a
success or a failure.
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
"""Consecutive failures that open a circuit."""

COOL_DOWN_SECONDS, LONGEST_COOL_DOWN_SECONDS = 0.5, 30.0
"""How long an open circuit lets no call through; doubled after every failed probe."""

PROBE_SECONDS = 5.0
"""How long a probe blocks other calls; a probe that takes longer may be a slow call of a healthy model."""

FORGET_SECONDS = 600.0
"""Failures are forgotten if no call was made for this long."""

Clock = Callable[[], float]


class Key(NamedTuple):
    """Identifies a circuit: an address of an expert, or one of its models."""

    expert: str
    address: str = ""
    model: str = ""

    @property
    def kind(self) -> str:
        return "address" if self.address else "model"


class CircuitBreaker:
    """Counts consecutive failures; when open, lets one probe at a time through, at growing intervals.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures = 0
        self._cool_down = COOL_DOWN_SECONDS
        self._blocked_until: float | None = None
        self._probing = False
        self.last_failure = clock()
        self.reason = ""
        """Message of the last failure."""

    @property
    def is_open(self) -> bool:
        return self._blocked_until is not None

    def seconds_left(self) -> float:
        """Seconds until it lets a call through; 0: now."""
        return 0.0 if self._blocked_until is None else max(0.0, self._blocked_until - self._clock())

    def enter(self) -> None:
        """Starts a call that it lets through; if it is open, the call is a probe and blocks others until it ends."""
        if self.is_open:
            self._probing = True
            self._blocked_until = self._clock() + PROBE_SECONDS

    def failed(self, reason: str, at_least: float = 0.0) -> None:
        """Records a failed call.

        Args:
            reason: message of the error.
            at_least: seconds during which another call would fail, too.
        """
        self.reason, self.last_failure = reason, self._clock()
        self._failures += 1
        if self._probing:
            self._cool_down = min(2 * self._cool_down, LONGEST_COOL_DOWN_SECONDS)
        if self._probing or (self._failures >= FAILURES and not self.is_open):
            self._probing = False
            self._blocked_until = self._clock() + max(self._cool_down, at_least)

    def ended_without_result(self) -> None:
        """Records a call whose end shows neither success nor failure, such as a cancelled one."""
        if self._probing:
            self._probing = False
            self._blocked_until = self._clock()


class CircuitBreakers:
    """Circuit breakers of all addresses and models of experts.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._circuits: dict[Key, CircuitBreaker] = {}
        self._changed = ChangeSignal()

    @property
    def all_closed(self) -> bool:
        """Whether no circuit has recorded a failure lately."""
        return not self._circuits

    def seconds_left(self, key: Key) -> float:
        """Seconds until the circuit lets a call through; 0: now."""
        circuit = self._circuits.get(key)
        return circuit.seconds_left() if circuit else 0.0

    def is_open(self, key: Key) -> bool:
        """Whether the last calls have failed and none has succeeded since."""
        return key in self._circuits and self._circuits[key].is_open

    def reason(self, *keys: Key) -> str:
        """Message of the last failure of the first open circuit among `keys`; empty if none is open."""
        return next((self._circuits[key].reason for key in keys if self.is_open(key)), "")

    def enter(self, *keys: Key) -> None:
        """Starts a call that all of the circuits let through."""
        for key in keys:
            if circuit := self._circuits.get(key):
                circuit.enter()

    def succeeded(self, key: Key) -> None:
        """Closes the circuit after a successful call."""
        if circuit := self._circuits.pop(key, None):
            self._report(key, circuit, was_open=circuit.is_open, is_open=False)

    def failed(self, key: Key, reason: str, at_least: float = 0.0) -> None:
        """Records a failed call; `at_least`: seconds during which another call would fail, too."""
        circuit = self._circuits.setdefault(key, CircuitBreaker(self._clock))
        was_open = circuit.is_open
        circuit.failed(reason, at_least)
        self._report(key, circuit, was_open=was_open, is_open=circuit.is_open)

    def ended_without_result(self, key: Key) -> None:
        """Records a call whose end shows neither success nor failure, such as a cancelled one."""
        if circuit := self._circuits.get(key):
            circuit.ended_without_result()
            self._changed.notify()

    async def wait_for_change(self, seconds: float) -> None:
        """Waits until any circuit changes, or until the time has passed."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    def avoid(self) -> list[Avoid]:
        """Circuits that let no call through now, for the selector to rank last."""
        return [
            Avoid(model_id=key.model, expert=key.expert, address=key.address)
            for key, circuit in self._circuits.items()
            if circuit.seconds_left()
        ]

    def forget(self) -> None:
        """Drops circuits without a failure for a long time, such as those of experts that moved."""
        before = self._clock() - FORGET_SECONDS
        for key, circuit in list(self._circuits.items()):
            if circuit.last_failure < before:
                self.succeeded(key)

    def _report(self, key: Key, circuit: CircuitBreaker, *, was_open: bool, is_open: bool) -> None:
        if was_open or is_open:
            self._changed.notify()
        if was_open is is_open:
            return
        metrics.circuit_open.add(1 if is_open else -1, {"expert": key.expert, "kind": key.kind})
        attributes = {names.EXPERT: key.expert, names.MODEL: key.model, names.CIRCUIT: key.kind}
        tracing.add_event(names.CIRCUIT_OPENED if is_open else names.CIRCUIT_CLOSED, attributes)
        fields = {name: value for name, value in key._asdict().items() if value}
        if is_open:
            log.warning("circuit opened", kind=key.kind, **fields, reason=circuit.reason)
        else:
            log.info("circuit closed", kind=key.kind, **fields)

"""Health of experts: which addresses can be called now, as circuits and load show, and which is best."""

import math
from collections.abc import Collection, Iterator
from datetime import timedelta

from grpc import StatusCode

from protos.hugginggpt.internal.v1.selector_pb2 import Avoid, SelectedCandidate
from protos.hugginggpt.v1.model_pb2 import Candidate
from services.common.errors import DeadlineExceeded, Overloaded, ServiceError, Unavailable
from services.orchestrator.experts.candidates import CandidateAttempts, CandidateUnavailable
from services.orchestrator.experts.circuit_breaker import CircuitBreakers, Key
from services.orchestrator.experts.load_balancer import LoadBalancer, Trailer

MAX_PROBE_WAIT_SECONDS = 10.0
"""Longest wait for the next probe of an unavailable expert, once a task has no other candidate."""

_MODEL_FAILURE_CODES = {StatusCode.INTERNAL, StatusCode.UNKNOWN, StatusCode.DATA_LOSS}

_CLIENT_SIDE_CODES = {StatusCode.DEADLINE_EXCEEDED, StatusCode.CANCELLED}
"""Status codes that the client can produce itself: they do not show that the server is reachable."""


class ExpertHealth:
    """Circuits and load of all experts; updated from the outcome of each call."""

    def __init__(self) -> None:
        self._circuits, self._balancer = CircuitBreakers(), LoadBalancer()

    # ------------------------------------------------------------ what can be called

    def avoid(self) -> list[Avoid]:
        """Experts, addresses and models with open circuits, for the selector to rank last."""
        return self._circuits.avoid()

    def seconds_to_call(self, selected: SelectedCandidate) -> float:
        """Seconds until a candidate can be called, as far as known; 0: now; infinite: it has no address."""
        return self.seconds_left(selected) if selected.endpoints else math.inf

    def seconds_left(self, selected: SelectedCandidate) -> float:
        """Seconds until the circuits let a call of the candidate through; 0: now."""
        if self._circuits.all_closed:
            return 0.0
        model = self._circuits.seconds_left(_model_key(selected.candidate))
        return max(model, min((self._circuits.seconds_left(key) for key in _address_keys(selected)), default=0.0))

    def seconds_to_probe(self, current: CandidateAttempts) -> float:
        """Seconds until the next probe of a candidate whose circuits let no call through.

        Raises:
            CandidateUnavailable: the task does not wait that long.
        """
        seconds, candidate = self.seconds_left(current.selected), current.candidate
        if current.may_wait and seconds < min(MAX_PROBE_WAIT_SECONDS, current.deadline.left):
            return seconds
        remedy = f"see the log of {candidate.expert}, or restart it; it is probed again in {math.ceil(seconds)} s"
        message, retry_after = self.unavailable_reason(current.selected), timedelta(seconds=seconds)
        raise CandidateUnavailable(message, reason="CIRCUIT_OPEN", remedy=remedy, retry_after=retry_after)

    def unavailable_reason(self, selected: SelectedCandidate) -> str:
        """Why the circuits let no call of the candidate through."""
        candidate = selected.candidate
        if model_error := self._circuits.reason(_model_key(candidate)):
            return f"model {candidate.model_id} of expert {candidate.expert} keeps failing: {model_error}"
        return f"expert {candidate.expert} cannot be reached: {self._circuits.reason(*_address_keys(selected))}"

    def is_address_down(self, candidate: Candidate, address: str) -> bool:
        """Whether the circuit of the address is open."""
        return self._circuits.is_open(_address_key(candidate, address))

    def all_addresses_down(self, selected: SelectedCandidate) -> bool:
        """Whether the circuits of all addresses are open."""
        return all(self._circuits.is_open(key) for key in _address_keys(selected))

    def has_other_address(self, selected: SelectedCandidate, excluded: Collection[str]) -> bool:
        """Whether an address that is not excluded can be called now."""
        return any(
            endpoint.address not in excluded
            and not self._circuits.seconds_left(_address_key(selected.candidate, endpoint.address))
            for endpoint in selected.endpoints
        )

    def choose_address(self, selected: SelectedCandidate, excluded: set[str]) -> str:
        """The address for the next call; empty if none can be called now.

        Args:
            selected: the candidate to call.
            excluded: addresses to use only if there are no others; cleared in that case.
        """
        candidate, usable = selected.candidate, list(selected.endpoints)
        if not self._circuits.all_closed:
            if self._circuits.seconds_left(_model_key(candidate)):
                return ""
            usable = [each for each in usable if not self._circuits.seconds_left(_address_key(candidate, each.address))]
        preferred = [endpoint for endpoint in usable if endpoint.address not in excluded] if excluded else usable
        if not preferred:
            excluded.clear()
        return self._balancer.choose(candidate.model_id, preferred or usable) if usable else ""

    async def wait_for_change(self, seconds: float) -> None:
        """Waits until any circuit changes, or until the time has passed."""
        await self._circuits.wait_for_change(seconds)

    def forget_unused(self) -> frozenset[str]:
        """Drops circuits and load that are no longer used; returns the addresses that still are."""
        self._balancer.forget()
        self._circuits.forget()
        return self._balancer.addresses

    # ------------------------------------------------------------ outcomes of calls

    def call_started(self, by: Candidate, address: str) -> None:
        """Records a started call."""
        self._circuits.enter(_address_key(by, address), _model_key(by))
        self._balancer.call_started(address, by.model_id)

    def call_ended(self, by: Candidate, address: str, trailer: Trailer) -> None:
        """Records an ended call, whatever its outcome; the trailing metadata of a reply reports the load."""
        self._balancer.call_ended(address, by.model_id, trailer)

    def call_succeeded(self, by: Candidate, address: str) -> None:
        """Closes the circuits after a successful call."""
        self._circuits.succeeded(_address_key(by, address))
        self._circuits.succeeded(_model_key(by))

    def call_cancelled(self, by: Candidate, address: str) -> None:
        """Records a cancelled call, which shows neither success nor failure."""
        self._circuits.ended_without_result(_address_key(by, address))
        self._circuits.ended_without_result(_model_key(by))

    def address_reached(self, by: Candidate, address: str) -> None:
        """Closes the circuit of a reachable address; the call itself may still fail."""
        self._circuits.succeeded(_address_key(by, address))

    def call_failed(self, by: Candidate, address: str, error: ServiceError, *, had_full_timeout: bool) -> None:
        """Updates the circuits of address and model, and the load, from a failed call.

        Args:
            by: the called candidate.
            address: the called address.
            error: of the call.
            had_full_timeout: the call's timeout was not cut short by the run's deadline.
        """
        address_key, model_key = _address_key(by, address), _model_key(by)
        if isinstance(error, Unavailable):
            self._circuits.failed(address_key, error.message)
            self._circuits.ended_without_result(model_key)
            return
        if error.code in _CLIENT_SIDE_CODES:
            self._circuits.ended_without_result(address_key)
        else:
            self._circuits.succeeded(address_key)
        retry_after = error.retry_after.total_seconds() if error.retry_after else 0.0
        if isinstance(error, Overloaded):
            self._balancer.refused(address, retry_after)
        timed_out = isinstance(error, DeadlineExceeded) and had_full_timeout
        if error.code in _MODEL_FAILURE_CODES or error.reason == "LOAD_FAILED" or timed_out:
            self._circuits.failed(model_key, error.message, retry_after)
        else:
            self._circuits.ended_without_result(model_key)


def _model_key(candidate: Candidate) -> Key:
    return Key(candidate.expert, model=candidate.model_id)


def _address_key(candidate: Candidate, address: str) -> Key:
    return Key(candidate.expert, address=address)


def _address_keys(selected: SelectedCandidate) -> Iterator[Key]:
    return (_address_key(selected.candidate, endpoint.address) for endpoint in selected.endpoints)

"""Health of experts: what an error of a call shows about its address and its model."""

import math
from datetime import timedelta

import pytest

from protos.hugginggpt.internal.v1.selector_pb2 import Avoid, Endpoint, SelectedCandidate
from protos.hugginggpt.v1.model_pb2 import Candidate
from services.common.errors import (
    CorruptData,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidRequest,
    ModelFailed,
    Overloaded,
    ServiceError,
    Unavailable,
)
from services.orchestrator.experts.circuit_breaker import FAILURES
from services.orchestrator.experts.health import ExpertHealth

A, B = "a:1", "b:1"
BY = Candidate(model_id="model", expert="expert")
ADDRESS, MODEL = Avoid(expert="expert", address=A), Avoid(expert="expert", model_id="model")


def selected(*addresses: str) -> SelectedCandidate:
    return SelectedCandidate(candidate=BY, endpoints=[Endpoint(address=address) for address in addresses])


def health_after(error: ServiceError, *, had_full_timeout: bool = True) -> ExpertHealth:
    """Health of an expert of which so many calls at address A have failed that a circuit opens."""
    health = ExpertHealth()
    for _ in range(FAILURES):
        health.call_failed(BY, A, error, had_full_timeout=had_full_timeout)
    return health


@pytest.mark.parametrize(
    ("error", "avoided"),
    [
        (Unavailable("down"), ADDRESS),
        (ModelFailed("nan"), MODEL),
        (CorruptData("no output"), MODEL),
        (FailedPrecondition("no file", reason="LOAD_FAILED"), MODEL),
        (DeadlineExceeded("too slow"), MODEL),
    ],
    ids=lambda value: type(value).__name__,
)
def test_repeated_error_opens_the_circuit_at_fault(error: ServiceError, avoided: Avoid) -> None:
    assert health_after(error).avoid() == [avoided]


@pytest.mark.parametrize("error", [InvalidRequest("bad"), Overloaded("full")], ids=lambda error: type(error).__name__)
def test_error_of_a_healthy_expert_opens_no_circuit(error: ServiceError) -> None:
    assert health_after(error).avoid() == []


def test_timeout_cut_short_by_the_run_opens_no_circuit() -> None:
    assert health_after(DeadlineExceeded("too slow"), had_full_timeout=False).avoid() == []


def test_candidate_with_one_closed_address_can_be_called_at_the_other() -> None:
    health = health_after(Unavailable("down"))
    assert health.seconds_to_call(selected(A)) > 0
    assert health.seconds_to_call(selected(A, B)) == 0
    assert health.choose_address(selected(A, B), set()) == B


def test_candidate_without_an_address_cannot_be_called() -> None:
    assert ExpertHealth().seconds_to_call(selected()) == math.inf


def test_excluded_address_is_chosen_only_without_another() -> None:
    health, excluded = ExpertHealth(), {A}
    assert health.choose_address(selected(A, B), excluded) == B
    assert health.choose_address(selected(A), excluded) == A
    assert not excluded


def test_circuit_of_a_model_stays_open_for_its_retry_after() -> None:
    error = FailedPrecondition("no file", reason="LOAD_FAILED", retry_after=timedelta(seconds=25))
    assert health_after(error).seconds_to_call(selected(A)) == pytest.approx(25, abs=1)


def test_reached_address_closes_its_circuit() -> None:
    health = health_after(Unavailable("down"))
    health.address_reached(BY, A)
    assert health.avoid() == []

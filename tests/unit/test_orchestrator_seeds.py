"""Seeds are fixed once for a run and its task."""

import json

import pytest

from protos.hugginggpt.v1.expert_pb2 import InferRequest
from protos.hugginggpt.v1.task_pb2 import Parameter, TaskSpec
from services.orchestrator.runs.arguments import apply_seed, choose_seed

DRAWS = TaskSpec(name="text-to-image", parameters=[Parameter(name="seed")])


def test_a_seed_is_drawn_by_run_and_task() -> None:
    request = InferRequest()
    seed = choose_seed(request, DRAWS, "run_1", 1)
    assert 0 < seed < 2**53
    assert seed == choose_seed(request, DRAWS, "run_1", 1)
    assert seed not in {choose_seed(request, DRAWS, "run_1", 2), choose_seed(request, DRAWS, "run_2", 1)}


@pytest.mark.parametrize("given", ["{}", "", '{"seed": -1}', '{"seed": "x"}', '{"seed": 9007199254740993}'])
def test_what_is_no_seed_is_replaced(given: str) -> None:
    assert choose_seed(InferRequest(parameters_json=given), DRAWS, "run_1", 1) > 0


def test_a_given_seed_is_kept() -> None:
    assert choose_seed(InferRequest(parameters_json='{"seed": 7}'), DRAWS, "run_1", 1) == 7


def test_a_task_that_draws_nothing_has_none() -> None:
    request = InferRequest(parameters_json='{"a":1}')
    assert choose_seed(request, TaskSpec(name="ocr"), "run_1", 1) == 0
    apply_seed(request, 0)
    assert request.parameters_json == '{"a":1}'


def test_a_seed_stands_among_the_parameters() -> None:
    request = InferRequest(parameters_json='{"steps":3}')
    apply_seed(request, 7)
    assert json.loads(request.parameters_json) == {"seed": 7, "steps": 3}

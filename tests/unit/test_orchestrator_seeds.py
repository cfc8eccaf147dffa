"""Seeds of random tasks, the same at every attempt."""

import json

import pytest

from protos.hugginggpt.v1.expert_pb2 import InferRequest
from protos.hugginggpt.v1.task_pb2 import Parameter, TaskSpec
from services.orchestrator.runs.arguments import apply_seed, choose_seed

RANDOM_TASK = TaskSpec(name="text-to-image", parameters=[Parameter(name="seed")])


def test_seed_depends_on_run_and_task() -> None:
    request = InferRequest()
    seed = choose_seed(request, RANDOM_TASK, "run_1", 1)
    assert 0 < seed < 2**53
    assert seed == choose_seed(request, RANDOM_TASK, "run_1", 1)
    assert seed not in {choose_seed(request, RANDOM_TASK, "run_1", 2), choose_seed(request, RANDOM_TASK, "run_2", 1)}


@pytest.mark.parametrize("given", ["{}", "", '{"seed": -1}', '{"seed": "x"}', '{"seed": 9007199254740993}'])
def test_missing_or_invalid_seed_is_derived(given: str) -> None:
    assert choose_seed(InferRequest(parameters_json=given), RANDOM_TASK, "run_1", 1) > 0


def test_given_seed_is_used() -> None:
    assert choose_seed(InferRequest(parameters_json='{"seed": 7}'), RANDOM_TASK, "run_1", 1) == 7


def test_task_without_seed_parameter_has_no_seed() -> None:
    request = InferRequest(parameters_json='{"a":1}')
    assert choose_seed(request, TaskSpec(name="ocr"), "run_1", 1) == 0
    apply_seed(request, 0)
    assert request.parameters_json == '{"a":1}'


def test_seed_is_added_to_the_parameters() -> None:
    request = InferRequest(parameters_json='{"steps":3}')
    apply_seed(request, 7)
    assert json.loads(request.parameters_json) == {"seed": 7, "steps": 3}

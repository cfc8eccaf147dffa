"""Results of all handlers of the torch experts in a batch equal those of single calls."""

from collections import defaultdict
from collections.abc import Hashable
from importlib import import_module
from typing import Any

import pytest

from tests.tiny import TinyModels
from tests.tiny.task_examples import MODALITIES, Case, RunningCall, Tolerance, assert_close, list_cases

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

ROUNDING = Tolerance(numbers=2e-4, pixels=0.1, levels=1.0, frames=4.0, samples=1e-3)
"""Kernels add in another order: results differ in the last decimal that outputs have."""
CASES = list(list_cases())


def name_case(case: Case) -> str:
    return f"{case.task}-{case.model}"


@pytest.mark.parametrize("case", CASES, ids=name_case)
def test_result_in_a_batch_equals_that_of_a_single_call(case: Case, tiny_models: TinyModels) -> None:
    handler, parameters, call = case.load(tiny_models), case.parameters(), RunningCall()
    items = [handler.prepare(inputs, parameters) for inputs in case.inputs()]
    batches = defaultdict[Hashable, list[Any]](list)
    for item in items:
        batches[handler.batch_key(item, parameters)].append(item)
    count = 1 if handler.batching.items == 1 else len(items)
    for batch in batches.values():
        alone = [handler.finish(handler.run([item], call)[0]) for item in batch]
        parts = [batch[start : start + count] for start in range(0, len(batch), count)]
        together = [raw for part in parts for raw in handler.run(part, call)]
        for raw, expected in zip(together, alone, strict=True):
            assert_close(handler.finish(raw), expected, ROUNDING)


def test_every_task_has_a_case() -> None:
    tasks = {task for modality in MODALITIES for task in import_module(f"experts.{modality}.tasks").TASKS}
    assert {case.task for case in CASES} == tasks

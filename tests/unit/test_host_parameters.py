from typing import Any

import pytest

from experts.host.parameters import ParameterReader
from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1.types_pb2 import Parameter, TaskSpec
from services.runtime.errors import FailedPrecondition, InvalidRequest

DETECTION = ParameterReader(standard_tasks()["object-detection"])
CLASSIFICATION = ParameterReader(standard_tasks()["text-classification"])
LABELS = ParameterReader(standard_tasks()["zero-shot-classification"])
NONE = ParameterReader(standard_tasks()["canny-control"])


@pytest.mark.parametrize(
    ("reader", "given", "read"),
    [
        (DETECTION, "", {"threshold": 0.5}),
        (DETECTION, "{}", {"threshold": 0.5}),
        (DETECTION, '{"threshold":0}', {"threshold": 0}),
        (CLASSIFICATION, '{"top_k":3.0}', {"top_k": 3}),
        (LABELS, '{"candidate_labels":["a","b"]}', {"candidate_labels": ["a", "b"], "multi_label": False}),
        (NONE, "", {}),
    ],
)
def test_parameters_are_read_and_completed(reader: ParameterReader, given: str, read: dict[str, Any]) -> None:
    parameters = reader.read(given)
    assert parameters == read
    assert {name: type(value) for name, value in parameters.items()} == {name: type(read[name]) for name in read}


@pytest.mark.parametrize(
    ("reader", "given", "complaint"),
    [
        (DETECTION, '{"threshold":1.5}', "parameter threshold: .*maximum"),
        (DETECTION, '{"threshold":"high"}', "parameter threshold: .*number"),
        (DETECTION, '{"threshold":true}', "parameter threshold"),
        (DETECTION, '{"treshold":0.5}', "no parameter treshold"),
        (DETECTION, '{"threshold":NaN}', "not JSON: NaN"),
        (DETECTION, '{"threshold":1e999}', "not JSON: 1e999 is too large"),
        (DETECTION, '{"threshold":', "not JSON"),
        (DETECTION, "[" * 100_000, "not JSON"),
        (DETECTION, "[]", "not a JSON object"),
        (CLASSIFICATION, '{"top_k":2.5}', "parameter top_k: .*integer"),
        (LABELS, '{"candidate_labels":[]}', "parameter candidate_labels"),
        (LABELS, '{"candidate_labels":["a",""]}', r"parameter candidate_labels\.1"),
        (NONE, '{"threshold":1}', "no parameter threshold"),
        (DETECTION, '{"threshold":"%s"}' % ("x" * 300_000), "262144 bytes"),
    ],
    ids=range(14),
)
def test_bad_parameters_are_refused_by_name(reader: ParameterReader, given: str, complaint: str) -> None:
    with pytest.raises(InvalidRequest, match=complaint) as caught:
        reader.read(given)
    assert caught.value.remedy
    assert len(caught.value.message) < 500


@pytest.mark.parametrize("schema", ["{", '{"type":"whole number"}', "[]"])
def test_a_spec_with_a_broken_schema_is_refused(schema: str) -> None:
    spec = TaskSpec(name="broken", parameters=[Parameter(name="size", json_schema=schema)])
    with pytest.raises(FailedPrecondition, match="broken"):
        ParameterReader(spec)

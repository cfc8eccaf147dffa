from typing import Any

import pytest

from experts.host.input_validation import ParameterReader, read_candidate_labels
from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1.task_pb2 import Parameter, TaskSpec
from services.common.errors import FailedPrecondition, InvalidRequest

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
def test_parameters_are_read_with_defaults(reader: ParameterReader, given: str, read: dict[str, Any]) -> None:
    parameters = reader.read(given)
    assert parameters == read
    assert {name: type(value) for name, value in parameters.items()} == {name: type(read[name]) for name in read}


@pytest.mark.parametrize(
    ("reader", "given", "message", "port"),
    [
        (DETECTION, '{"threshold":1.5}', "parameter threshold: .*maximum", "parameters.threshold"),
        (DETECTION, '{"threshold":"high"}', "parameter threshold: .*number", "parameters.threshold"),
        (DETECTION, '{"threshold":true}', "parameter threshold", "parameters.threshold"),
        (DETECTION, '{"treshold":0.5}', "no parameter treshold", "parameters.treshold"),
        (DETECTION, '{"threshold":NaN}', "not JSON: NaN", "parameters"),
        (DETECTION, '{"threshold":1e999}', "not JSON: the number 1e999 is too large", "parameters"),
        (DETECTION, '{"threshold":', "not JSON", "parameters"),
        (DETECTION, "[" * 100_000, "not JSON", "parameters"),
        (DETECTION, "[]", "not a JSON object", "parameters"),
        (CLASSIFICATION, '{"top_k":2.5}', "parameter top_k: .*integer", "parameters.top_k"),
        (LABELS, '{"candidate_labels":[]}', "parameter candidate_labels", "parameters.candidate_labels"),
        (LABELS, '{"candidate_labels":["a",""]}', r"parameter candidate_labels\.1", "parameters.candidate_labels"),
        (NONE, '{"threshold":1}', "no parameter threshold", "parameters.threshold"),
        (DETECTION, '{"threshold":"%s"}' % ("x" * 300_000), "262144 bytes", "parameters"),
    ],
    ids=range(14),
)
def test_invalid_parameter_is_refused_by_name(reader: ParameterReader, given: str, message: str, port: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as caught:
        reader.read(given)
    assert caught.value.remedy
    assert caught.value.port == port
    assert len(caught.value.message) < 500


@pytest.mark.parametrize("schema", ["{", '{"type":"whole number"}', "[]"])
def test_spec_with_invalid_schema_is_refused(schema: str) -> None:
    spec = TaskSpec(name="broken", parameters=[Parameter(name="size", json_schema=schema)])
    with pytest.raises(FailedPrecondition, match="broken"):
        ParameterReader(spec)


def test_candidate_labels_are_stripped_and_distinct() -> None:
    assert read_candidate_labels({"candidate_labels": ["cat", " dog ", "cat "]}) == ["cat", "dog"]


@pytest.mark.parametrize("parameters", [{}, {"candidate_labels": []}, {"candidate_labels": ["cat", " "]}])
def test_missing_or_empty_candidate_label_is_refused(parameters: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="candidate_labels") as caught:
        read_candidate_labels(parameters)
    assert caught.value.port == "parameters.candidate_labels"
    assert caught.value.remedy

"""Names of the artifacts of a run: no two results share one."""

import pytest

from protos.hugginggpt.v1.artifact_pb2 import Artifact, Value
from protos.hugginggpt.v1.run_pb2 import TaskResult
from services.orchestrator.runs.result import rename_duplicates


def result(**names: str) -> TaskResult:
    return TaskResult(outputs={port: Value(artifact=Artifact(name=name)) for port, name in names.items()})


@pytest.mark.parametrize(
    ("name", "earlier", "expected"),
    [
        ("speech.wav", [], "speech.wav"),
        ("speech.wav", ["image.png"], "speech.wav"),
        ("speech.wav", ["speech.wav"], "speech-2.wav"),
        ("speech.wav", ["speech.wav", "speech-2.wav"], "speech-3.wav"),
        ("archive.tar.gz", ["archive.tar.gz"], "archive.tar-2.gz"),
        ("README", ["README"], "README-2"),
        ("", [""], ""),
    ],
)
def test_artifact_name_is_numbered_if_an_earlier_result_has_it(name: str, earlier: list[str], expected: str) -> None:
    new = result(audio=name)
    rename_duplicates(new, [result(audio=each) for each in earlier])
    assert new.outputs["audio"].artifact.name == expected


def test_artifacts_of_one_result_have_different_names() -> None:
    new = result(a="mask.png", b="mask.png")
    rename_duplicates(new, [])
    assert new.outputs["a"].artifact.name == "mask.png"
    assert new.outputs["b"].artifact.name == "mask-2.png"


def test_result_without_artifacts_is_unchanged() -> None:
    new = TaskResult(outputs={"text": Value(text="hi")})
    rename_duplicates(new, [result(audio="speech.wav")])
    assert new == TaskResult(outputs={"text": Value(text="hi")})

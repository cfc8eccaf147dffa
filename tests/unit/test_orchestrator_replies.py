"""Validation of experts' replies."""

import pytest

from protos.hugginggpt.v1.artifact_pb2 import MODALITY_IMAGE, MODALITY_JSON, MODALITY_TEXT, Artifact, Value
from protos.hugginggpt.v1.expert_pb2 import InferResponse
from protos.hugginggpt.v1.task_pb2 import Port, TaskSpec
from services.common.artifacts import INLINE_BYTES
from services.common.errors import CorruptData
from services.orchestrator.experts.replies import check_reply

SPEC = TaskSpec(
    name="description",
    outputs=[
        Port(name="text", modality=MODALITY_TEXT, required=True),
        Port(name="boxes", modality=MODALITY_JSON),
        Port(name="picture", modality=MODALITY_IMAGE),
    ],
)
TEXT = Value(text="said")
ARTIFACT = Value(artifact=Artifact(sha256="0" * 64, media_type="image/png", size_bytes=9))


@pytest.mark.parametrize(
    "outputs",
    [
        {"text": TEXT},
        {"text": ARTIFACT},
        {"text": Value(text="")},
        {"text": Value(text="x" * INLINE_BYTES)},
        {"text": TEXT, "boxes": Value(json="[]"), "picture": ARTIFACT},
        {"text": TEXT, "boxes": ARTIFACT},
    ],
)
def test_reply_that_fits_its_ports_is_accepted(outputs: dict[str, Value]) -> None:
    check_reply(InferResponse(outputs=outputs), SPEC)


@pytest.mark.parametrize(
    ("outputs", "complaint"),
    [
        ({}, "lacks the required output text"),
        ({"boxes": Value(json="[]")}, "lacks the required output text"),
        ({"text": Value()}, "text is empty"),
        ({"text": Value(json='"said"')}, "text is json"),
        ({"text": TEXT, "picture": Value(text="la")}, "picture is text"),
        ({"text": TEXT, "sound": ARTIFACT}, "has sound"),
        ({"text": TEXT, "picture": Value(artifact=Artifact(sha256="../etc"))}, "without a digest"),
        ({"text": Value(text="x" * (INLINE_BYTES + 1))}, "256 KiB inline"),
        ({"text": TEXT, "boxes": Value(json="[1,")}, "boxes is not JSON"),
        ({"text": TEXT, "boxes": Value(json="[" * 100_000)}, "boxes is not JSON"),
    ],
)
def test_reply_that_does_not_fit_its_ports_is_corrupt(outputs: dict[str, Value], complaint: str) -> None:
    with pytest.raises(CorruptData, match=complaint) as caught:
        check_reply(InferResponse(outputs=outputs), SPEC)
    assert "expert" in caught.value.message
    assert caught.value.remedy

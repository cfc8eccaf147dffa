"""What an expert's reply must be."""

import pytest

from protos.hugginggpt.v1.artifact_pb2 import MODALITY_IMAGE, MODALITY_JSON, MODALITY_TEXT, Artifact, Value
from protos.hugginggpt.v1.expert_pb2 import InferResponse
from protos.hugginggpt.v1.task_pb2 import Port, TaskSpec
from services.common.artifacts import INLINE_BYTES
from services.common.errors import CorruptData
from services.orchestrator.experts.reply_validation import check_reply

SPEC = TaskSpec(
    name="seeing",
    outputs=[
        Port(name="text", modality=MODALITY_TEXT, required=True),
        Port(name="boxes", modality=MODALITY_JSON),
        Port(name="picture", modality=MODALITY_IMAGE),
    ],
)
SAID = Value(text="said")
KEPT = Value(artifact=Artifact(sha256="0" * 64, media_type="image/png", size_bytes=9))


@pytest.mark.parametrize(
    "outputs",
    [
        {"text": SAID},
        {"text": KEPT},
        {"text": Value(text="")},
        {"text": Value(text="x" * INLINE_BYTES)},
        {"text": SAID, "boxes": Value(json="[]"), "picture": KEPT},
        {"text": SAID, "boxes": KEPT},
    ],
)
def test_a_reply_that_fits_its_ports_is_taken(outputs: dict[str, Value]) -> None:
    check_reply(InferResponse(outputs=outputs), SPEC)


@pytest.mark.parametrize(
    ("outputs", "complaint"),
    [
        ({}, "lacks the required output text"),
        ({"boxes": Value(json="[]")}, "lacks the required output text"),
        ({"text": Value()}, "text is empty"),
        ({"text": Value(json='"said"')}, "text is json"),
        ({"text": SAID, "picture": Value(text="la")}, "picture is text"),
        ({"text": SAID, "sound": KEPT}, "has sound"),
        ({"text": SAID, "picture": Value(artifact=Artifact(sha256="../etc"))}, "without a digest"),
        ({"text": Value(text="x" * (INLINE_BYTES + 1))}, "256 KiB inline"),
        ({"text": SAID, "boxes": Value(json="[1,")}, "boxes is not JSON"),
        ({"text": SAID, "boxes": Value(json="[" * 100_000)}, "boxes is not JSON"),
    ],
)
def test_a_reply_that_does_not_is_corrupt_and_says_whose_fault_it_is(outputs: dict[str, Value], complaint: str) -> None:
    with pytest.raises(CorruptData, match=complaint) as caught:
        check_reply(InferResponse(outputs=outputs), SPEC)
    assert "expert" in caught.value.message
    assert caught.value.remedy

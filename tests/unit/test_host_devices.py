import pytest
from pydantic import ValidationError

from experts.host.devices import Placement, Placements, limit_bytes, resident_bytes, trim
from experts.host.settings import Settings


@pytest.mark.parametrize(
    ("text", "model", "placement"),
    [
        ("", "m", Placement("auto")),
        ("*=cpu", "m", Placement("cpu")),
        ("m=cuda:1:bf16,*=auto", "m", Placement("cuda:1", "bfloat16")),
        ("m=cuda:1:bf16,*=auto", "other", Placement("auto")),
        ("org/name=cuda:fp16, *=auto:float32", "org/name", Placement("cuda", "float16")),
        ("org/name=cuda:fp16, *=auto:float32", "other", Placement("auto", "float32")),
    ],
)
def test_placements_are_parsed_per_model(text: str, model: str, placement: Placement) -> None:
    assert Placements(text).of(model) == placement


@pytest.mark.parametrize("text", ["cuda", "m=gpu", "m=cuda:x", "m=cpu:0", "=cpu", "m=cuda:0:int8"])
def test_invalid_placement_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="MODEL=DEVICE"):
        Settings(devices=text)


def test_resident_memory_is_within_the_machine_limit() -> None:
    trim()
    assert 0 < resident_bytes() < limit_bytes()

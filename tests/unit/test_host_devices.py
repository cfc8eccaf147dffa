import pytest
from pydantic import ValidationError

from experts.host.devices import Place, Places, limit_bytes, resident_bytes, trim
from experts.host.settings import Settings


@pytest.mark.parametrize(
    ("text", "model", "place"),
    [
        ("", "m", Place("auto")),
        ("*=cpu", "m", Place("cpu")),
        ("m=cuda:1:bf16,*=auto", "m", Place("cuda:1", "bfloat16")),
        ("m=cuda:1:bf16,*=auto", "other", Place("auto")),
        ("org/name=cuda:fp16, *=auto:float32", "org/name", Place("cuda", "float16")),
        ("org/name=cuda:fp16, *=auto:float32", "other", Place("auto", "float32")),
    ],
)
def test_the_operator_says_where_models_compute(text: str, model: str, place: Place) -> None:
    assert Places(text).of(model) == place


@pytest.mark.parametrize("text", ["cuda", "m=gpu", "m=cuda:x", "m=cpu:0", "=cpu", "m=cuda:0:int8"])
def test_what_is_no_place_is_refused_at_the_start(text: str) -> None:
    with pytest.raises(ValidationError, match="MODEL=DEVICE"):
        Settings(devices=text)


def test_the_process_and_the_machine_have_memory() -> None:
    trim()
    assert 0 < resident_bytes() < limit_bytes()

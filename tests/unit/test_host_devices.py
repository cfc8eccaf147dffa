from pathlib import Path

import pytest
from pydantic import ValidationError

from experts.host import devices
from experts.host.devices import (
    Placement,
    Placements,
    batch_scale,
    default_threads,
    limit_bytes,
    resident_bytes,
    trim,
    usable_cores,
)
from experts.host.settings import Settings

GIBIBYTE = 2**30


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


@pytest.mark.parametrize(
    ("device", "memory", "cores", "scale"),
    [
        ("cuda:0", 8, 4, 1.0),
        ("cuda:0", 16, 4, 1.0),
        ("cuda:1", 80, 4, 5.0),
        ("cpu", 64, 2, 1.0),
        ("cpu", 64, 8, 2.0),
        ("cpu", 24, 64, 1.5),
    ],
)
def test_batch_scale_follows_memory_and_on_a_cpu_also_cores(
    monkeypatch: pytest.MonkeyPatch, device: str, memory: int, cores: int, scale: float
) -> None:
    monkeypatch.setattr(devices, "usable_cores", lambda: cores)
    assert batch_scale(device, memory * GIBIBYTE) == scale


@pytest.mark.parametrize(("cores", "threads"), [(1, 2), (4, 2), (16, 8), (128, 16)])
def test_default_threads_are_half_of_the_cores_within_limits(
    monkeypatch: pytest.MonkeyPatch, cores: int, threads: int
) -> None:
    monkeypatch.setattr(devices, "usable_cores", lambda: cores)
    assert default_threads() == threads


@pytest.mark.parametrize(("quota", "cores"), [("150000 100000", 2), ("50000 100000", 1), ("max 100000", 8), (None, 8)])
def test_usable_cores_are_limited_by_the_container(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, quota: str | None, cores: int
) -> None:
    file = tmp_path / "cpu.max"
    if quota:
        file.write_text(quota)
    monkeypatch.setattr(devices, "_CPU_QUOTA", file)
    monkeypatch.setattr("os.sched_getaffinity", lambda process_id: set(range(8)), raising=False)
    assert usable_cores.__wrapped__() == cores


@pytest.mark.parametrize("value", ["-1", "nan", "inf"])
def test_invalid_batch_scale_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("EXPERT_BATCH_SCALE", value)
    with pytest.raises(ValidationError, match="batch_scale"):
        Settings()


def test_resident_memory_is_within_the_machine_limit() -> None:
    trim()
    assert 0 < resident_bytes() < limit_bytes()

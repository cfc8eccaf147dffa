"""The images' lock files satisfy pyproject.toml and agree with each other."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
EXPERTS = ("lite", "text", "vision", "audio", "video", "diffusion", "remote", "served")
BULK_EXPERTS = ("lite", "text", "vision", "audio")
"""As docker/images.mk has them."""
LOCKS = {
    **{f"expert-{expert}": (expert, "telemetry") for expert in EXPERTS},
    "expert-lite": ("lite", "telemetry", "speech", "llm"),
    "bulk": (*BULK_EXPERTS, "bulk-ray", "telemetry", "speech", "llm"),
}
"""Extras of each expert image, by lock."""
PIN = re.compile(
    r"^([a-z0-9.-]+)==(\S+)(?: ; [^\\]+)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TORCH = ("torch-cpu", "torch-cuda")

Pins = dict[str, set[Version]]


def pins(lock: str) -> Pins:
    """Versions by package in a lock file; several if they depend on environment markers."""
    text = (ROOT / "docker" / f"{lock}.lock").read_text()
    assert PIN.sub("", text) == "", "something is not pinned with its hashes"
    found: Pins = {}
    for name, version, _ in PIN.findall(text):
        found.setdefault(name, set()).add(Version(version))
    return found


def required(*extras: str) -> Iterator[Requirement]:
    """Requirements of the project and its extras, with nested extras resolved."""
    for text in (
        *PROJECT["dependencies"],
        *(each for extra in extras for each in PROJECT["optional-dependencies"][extra]),
    ):
        requirement = Requirement(text)
        if requirement.name == "hugginggpt":
            yield from required(*requirement.extras)
        else:
            yield requirement


def missing(found: Pins, *extras: str) -> list[str]:
    """Requirements that no pin satisfies."""
    return [
        str(requirement)
        for requirement in required(*extras)
        if not any(requirement.specifier.contains(each) for each in found.get(canonicalize_name(requirement.name), ()))
    ]


def test_core_lock_satisfies_its_extras_without_torch() -> None:
    found = pins("core")
    assert missing(found, "gateway", "planner", "selector", "llm", "postgres", "telemetry") == []
    assert "torch" not in found


@pytest.mark.parametrize("lock", LOCKS)
def test_expert_lock_satisfies_its_extras(lock: str) -> None:
    found = pins(lock)
    assert "torch" not in found, "torch has a layer of its own"
    assert [each for each in missing(found, *LOCKS[lock]) if not each.startswith("torch<")] == []


@pytest.mark.parametrize("expert", BULK_EXPERTS)
def test_bulk_lock_has_the_versions_of_the_experts_own_image(expert: str) -> None:
    alone, together = pins(f"expert-{expert}"), pins("bulk")
    changed = {name for name in alone if alone[name] != together.get(name)}
    assert changed <= {"tqdm"}, "daft excludes newer tqdm"


def test_vision_extra_has_the_tokenizer_library_of_siglip() -> None:
    assert "sentencepiece" in {each.name for each in required("vision")}


@pytest.mark.parametrize("torch", TORCH)
@pytest.mark.parametrize("lock", LOCKS)
def test_expert_lock_pins_the_same_versions_as_the_torch_layer(lock: str, torch: str) -> None:
    base, found = pins(torch), pins(lock)
    assert {name: (base[name], found[name]) for name in base.keys() & found if base[name] != found[name]} == {}


def test_cpu_and_cuda_builds_of_torch_have_one_supported_version() -> None:
    (cpu,), (cuda,) = (pins(lock)["torch"] for lock in TORCH)
    assert cpu.public == cuda.public
    assert cpu.local == "cpu"
    assert cuda.local is None
    assert next(each for each in required("torch") if each.name == "torch").specifier.contains(cuda)


def test_unsatisfied_requirement_is_reported() -> None:
    found = pins("core") | {"structlog": {Version("1.0")}}
    assert missing(found) == [next(str(each) for each in required() if each.name == "structlog")]

"""Locks of the images agree with pyproject.toml, which they are made from, and with each other."""

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
PIN = re.compile(
    r"^([a-z0-9.-]+)==(\S+)(?: ; [^\\]+)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TORCH = ("torch-cpu", "torch-cuda")

Pins = dict[str, set[Version]]


def pins(lock: str) -> Pins:
    """What a lock names, each with the versions that one of its markers or another chooses."""
    text = (ROOT / "docker" / f"{lock}.lock").read_text()
    assert PIN.sub("", text) == "", "something is not pinned with its hashes"
    found: Pins = {}
    for name, version, _ in PIN.findall(text):
        found.setdefault(name, set()).add(Version(version))
    return found


def wanted(*extras: str) -> Iterator[Requirement]:
    for text in (
        *PROJECT["dependencies"],
        *(each for extra in extras for each in PROJECT["optional-dependencies"][extra]),
    ):
        requirement = Requirement(text)
        if requirement.name == "hugginggpt":
            yield from wanted(*requirement.extras)
        else:
            yield requirement


def missing(found: Pins, *extras: str) -> list[str]:
    """Requirements that no pin satisfies."""
    return [
        str(requirement)
        for requirement in wanted(*extras)
        if not any(requirement.specifier.contains(each) for each in found.get(canonicalize_name(requirement.name), ()))
    ]


def test_the_core_has_all_it_stands_on_and_no_torch() -> None:
    found = pins("core")
    assert missing(found, "gateway", "planner", "selector", "llm", "postgres", "telemetry") == []
    assert "torch" not in found


@pytest.mark.parametrize("expert", EXPERTS)
def test_an_expert_has_all_it_stands_on(expert: str) -> None:
    found = pins(f"expert-{expert}")
    assert "torch" not in found, "it has a layer of its own"
    extras = (expert, "telemetry", "speech") if expert == "lite" else (expert, "telemetry")
    assert [each for each in missing(found, *extras) if not each.startswith("torch<")] == []


@pytest.mark.parametrize("torch", TORCH)
@pytest.mark.parametrize("expert", EXPERTS)
def test_what_torch_brought_is_not_replaced(expert: str, torch: str) -> None:
    brought, found = pins(torch), pins(f"expert-{expert}")
    assert {name: (brought[name], found[name]) for name in brought.keys() & found if brought[name] != found[name]} == {}


def test_both_builds_of_torch_are_of_one_version_that_the_project_takes() -> None:
    (cpu,), (cuda,) = (pins(lock)["torch"] for lock in TORCH)
    assert (cpu.public, cpu.local, cuda.local) == (cuda.public, "cpu", None)
    assert next(each for each in wanted("torch") if each.name == "torch").specifier.contains(cuda)


def test_a_pin_that_no_longer_fits_is_told() -> None:
    found = pins("core") | {"structlog": {Version("1.0")}}
    assert missing(found) == [next(str(each) for each in wanted() if each.name == "structlog")]

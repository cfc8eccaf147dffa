"""What the house promises about itself: who stands where, and how light the light services are."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = {"protos", "services", "gateway", "experts", "k8s", "docker", "tests"}
FILES = {"Makefile", "README.md", "pyproject.toml", "LICENSE"}
HEAVY = ("torch", "transformers", "diffusers", "cv2", "onnxruntime", "scipy", "sklearn", "openai", "PIL", "rapidocr")
LIGHT = (
    "services.planner.__main__",
    "services.selector.__main__",
    "services.orchestrator.__main__",
    "services.responder.__main__",
    "services.local.light_services",
    "gateway.__main__",
    "gateway.cli",
)
WITHOUT_NUMPY = [
    module for module in LIGHT if module not in {"services.planner.__main__", "services.local.light_services"}
]
"""The planner alone reads learned weights."""


pytestmark = pytest.mark.needs("git")


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [Path(name) for name in listed.split("\0") if name]


def test_the_root_holds_what_it_should_and_nothing_else() -> None:
    at_root = {path.parts[0] for path in tracked() if not path.parts[0].startswith(".")}
    assert at_root == FOLDERS | FILES


@pytest.mark.parametrize("module", LIGHT)
def test_a_light_service_imports_nothing_heavy(module: str) -> None:
    heavy = (*HEAVY, "numpy") if module in WITHOUT_NUMPY else HEAVY
    program = f"import sys, {module}; print(*(name for name in {heavy!r} if name in sys.modules))"
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True)
    assert run.stdout.split() == []


def test_every_message_and_rpc_says_what_it_is() -> None:
    silent = []
    for proto in sorted((ROOT / "protos/hugginggpt").rglob("*.proto")):
        before = ""
        for number, line in enumerate(proto.read_text(encoding="utf-8").splitlines(), start=1):
            declared = line.strip().startswith(("message ", "rpc ", "service ", "enum "))
            if declared and not before.startswith("//"):
                silent.append(f"{proto.name}:{number} {line.strip()}")
            before = line.strip()
    assert silent == []


def test_modules_stay_small() -> None:
    longest = {
        str(path): lines
        for path in tracked()
        if path.suffix == ".py" and "_pb2" not in path.name and path.parts[0] != "tests"
        if (lines := len((ROOT / path).read_text(encoding="utf-8").splitlines())) > 300
    }
    assert longest == {}

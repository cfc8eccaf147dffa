"""Structure of the repository: files at its root, imports of the small services, comments in protos."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = {"protos", "services", "gateway", "experts", "k8s", "docker", "tests"}
FILES = {"Makefile", "README.md", "pyproject.toml", "LICENSE"}
LARGE_LIBRARIES = (
    *("torch", "transformers", "diffusers", "cv2", "onnxruntime", "scipy", "sklearn", "openai", "PIL", "rapidocr"),
)
SMALL_SERVICES = (
    "services.planner.__main__",
    "services.selector.__main__",
    "services.orchestrator.__main__",
    "services.responder.__main__",
    "services.local.shared_process",
    "gateway.__main__",
    "gateway.cli",
)
WITHOUT_NUMPY = set(SMALL_SERVICES) - {"services.planner.__main__", "services.local.shared_process"}
"""Only the planner reads learned weights."""

pytestmark = pytest.mark.needs("git")


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [Path(name) for name in listed.split("\0") if name]


def test_root_has_only_the_expected_files() -> None:
    at_root = {path.parts[0] for path in tracked_files() if not path.parts[0].startswith(".")}
    assert at_root == FOLDERS | FILES


@pytest.mark.parametrize("module", SMALL_SERVICES)
def test_small_service_imports_no_large_library(module: str) -> None:
    excluded = (*LARGE_LIBRARIES, "numpy") if module in WITHOUT_NUMPY else LARGE_LIBRARIES
    program = f"import sys, {module}; print(*(name for name in {excluded!r} if name in sys.modules))"
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True)
    assert run.stdout.split() == []


def test_proto_declarations_have_comments() -> None:
    without_comment = []
    for proto in sorted((ROOT / "protos/hugginggpt").rglob("*.proto")):
        before = ""
        for number, line in enumerate(proto.read_text(encoding="utf-8").splitlines(), start=1):
            is_declaration = line.strip().startswith(("message ", "rpc ", "service ", "enum "))
            if is_declaration and not before.startswith("//"):
                without_comment.append(f"{proto.name}:{number} {line.strip()}")
            before = line.strip()
    assert without_comment == []

"""docker/slim.py removes unused files of the core image's packages, which still work afterwards."""

import ctypes
import runpy
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SLIM = ROOT / "docker" / "slim.py"
SCRIPT = runpy.run_path(str(SLIM))


def library(module: str) -> Path:
    spec = find_spec(module)
    assert spec
    assert spec.origin
    return Path(spec.origin)


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """Installed packages: a library with symbols, a library changed by patchelf, and files not needed at run time."""
    shutil.copy(library("asyncpg.protocol.protocol"), tmp_path / "whole.so")
    shutil.copy(library("numpy._core._multiarray_umath"), tmp_path / "patched.so")
    others = ("numpy/core.h", "numpy/core/tests/data.csv", "rich/hints.pyi", "rich/tests/test_never.py")
    for name in ("numpy/never.py", "numpy/py.typed", "rich/never.py", "rich/tests.py", *others):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    return tmp_path


def slimmed(folder: Path) -> set[str]:
    subprocess.run([sys.executable, SLIM, folder], check=True, timeout=60)
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


def test_sources_tests_and_unused_modules_are_removed(packages: Path) -> None:
    assert slimmed(packages) == {"whole.so", "patched.so", "numpy/py.typed", "rich/never.py", "rich/tests.py"}


def test_libraries_load_without_symbols(packages: Path) -> None:
    whole = packages / "whole.so"
    before = whole.stat().st_size
    slimmed(packages)
    assert whole.stat().st_size < before
    assert ctypes.CDLL(str(whole)).PyInit_protocol


def test_second_run_changes_nothing(packages: Path) -> None:
    slimmed(packages)
    once = {file: (packages / file).read_bytes() for file in ("whole.so", "patched.so")}
    slimmed(packages)
    assert {file: (packages / file).read_bytes() for file in once} == once


def test_linker_script_is_unchanged(tmp_path: Path) -> None:
    (tmp_path / "script.so").write_text("INPUT(other.so)")
    slimmed(tmp_path)
    assert (tmp_path / "script.so").read_text() == "INPUT(other.so)"


def test_programs_import_only_retained_modules_of_narrowed_packages() -> None:
    command = [
        sys.executable,
        "-m",
        "tests.support.large_imports",
        ",".join(SCRIPT["NARROWED"]),
        *SCRIPT["IMPORTED"].split(),
    ]
    done = subprocess.run(command, cwd=ROOT, check=True, timeout=100, stdout=subprocess.PIPE, text=True)
    assert done.stdout == ""


def test_large_imports_reports_modules_that_are_not_retained() -> None:
    command = [sys.executable, "-m", "tests.support.large_imports", "openai", "openai"]
    done = subprocess.run(command, cwd=ROOT, check=True, timeout=100, stdout=subprocess.PIPE, text=True)
    assert "openai.resources.chat.chat" in done.stdout.split()

"""The version is that of pyproject.toml wherever a file repeats it."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.manifests.rules.images import version

ROOT = Path(__file__).parents[2]
NUMBER = r"(\d+\.\d+\.\d+)"
REPETITION = re.compile(
    rf"hugginggpt/[a-z-]+:{NUMBER}|newTag: {NUMBER}-cuda|app\.kubernetes\.io/version: {NUMBER}|\${{TAG:-{NUMBER}}}"
    rf"|^ +VERSION: {NUMBER}$|\?ref=v{NUMBER}|tagged? {NUMBER}-cuda|tags them `{NUMBER}-cuda`"
    rf"|\"(?:expert_)?version\": \"{NUMBER}\"",
    re.MULTILINE,
)
FOLDERS = ("docker", "k8s", "gateway/openapi", "gateway/openapi.json", "README.md")


def repeated(text: str) -> Iterator[tuple[int, str]]:
    """Line and version of each repetition in a text."""
    for found in REPETITION.finditer(text):
        yield text.count("\n", 0, found.start()) + 1, next(number for number in found.groups() if number)


def test_repeated_versions_are_that_of_the_project() -> None:
    names = subprocess.run(["git", "ls-files", *FOLDERS], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    found = [
        (f"{name}:{line}", number)
        for name in names.splitlines()
        if (ROOT / name).is_file()
        for line, number in repeated((ROOT / name).read_text(encoding="utf-8"))
    ]
    assert len(found) > 40
    assert [place for place, number in found if number != version()] == []


def test_other_version_is_found() -> None:
    text = "image: hugginggpt/core:9.9.9\n  newTag: 9.9.8-cuda\nREPOSITORY//k8s?ref=v9.9.7"
    assert list(repeated(text)) == [(1, "9.9.9"), (2, "9.9.8"), (3, "9.9.7")]

"""Commands and samples on Markdown pages: shell and Python parse, JSON and YAML load, named programs exist."""

import ast
import json
import re
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from typer.core import TyperGroup

from gateway.cli.commands import app
from services.selector import routing_table
from tests.readme import ROOT
from tests.support.pages import code_blocks

pytestmark = [pytest.mark.needs("git"), pytest.mark.needs("bash")]

LISTED = subprocess.run(["git", "ls-files", "*README.md", ".github/*.md"], cwd=ROOT, capture_output=True, check=True)
PAGES = [Path(name) for name in LISTED.stdout.decode().splitlines()]
MAKEFILES = [ROOT / "Makefile", ROOT / "docker" / "images.mk"]
FRAGMENT = re.compile(r'^ *("usage"|- target:)|…')
"""Samples that show a part of a document."""

_MODULE = re.compile(r"python -m ([a-z][\w.]*)")
_FILE = re.compile(r"(?<![\w/.-])(?:tests|docker|k8s|gateway|services|experts|protos)/[\w./*-]*[\w*]")
_INLINE_COMMAND = re.compile(r"(?<!`)`(hugginggpt [^`]+)`(?!`)")
_COMMAND = re.compile(r"(?:^|[|(&] *|-- )hugginggpt ((?:[a-z][a-z-]* ?)+)([^#|&)\n]*)", re.MULTILINE)


def blocks(page: Path, language: str) -> Iterator[str]:
    """Code blocks of a page in a language."""
    return code_blocks((ROOT / page).read_text(encoding="utf-8"), language)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_shell_commands_parse(page: Path) -> None:
    for text in blocks(page, "sh"):
        subprocess.run(["bash", "-n"], input=text, check=True, text=True)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_python_samples_compile(page: Path) -> None:
    for text in blocks(page, "python"):
        ast.parse(text)


def test_clients_on_the_main_page_are_those_of_the_gateways_page() -> None:
    samples = [text for text in blocks(Path("README.md"), "python") if "hugginggpt.v1" in text or "HuggingGPT" in text]
    assert len(samples) == 2
    assert [text for text in samples if text not in blocks(Path("gateway/README.md"), "python")] == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_data_samples_load(page: Path) -> None:
    for text in blocks(page, "json"):
        if not FRAGMENT.search(text):
            json.loads(text)
    for text in blocks(page, "yaml"):
        if not FRAGMENT.search(text):
            list(yaml.safe_load_all(text))


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_named_commands_and_options_exist(page: Path) -> None:
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    in_text = _INLINE_COMMAND.findall((ROOT / page).read_text(encoding="utf-8"))
    assert [line for text in (*blocks(page, "sh"), *in_text) for line in _unknown_commands(text, root)] == []


def _unknown_commands(text: str, root: TyperGroup) -> Iterator[str]:
    for names, rest in _COMMAND.findall(text.replace("\\\n", " ")):
        command: Any = root
        for name in names.split():
            if not isinstance(command, TyperGroup):
                break
            found = command.commands.get(name)
            if found is None:
                yield f"hugginggpt {names}"
                break
            command = found
        options = {option for parameter in command.params for option in parameter.opts} | {"--help"}
        written = re.sub(r"\"[^\"]*\"|'[^']*'", "", rest)
        yield from (f"hugginggpt {names}{each}" for each in re.findall(r"--[a-z-]+", written) if each not in options)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_make_targets_exist(page: Path) -> None:
    targets = {name for file in MAKEFILES for name in re.findall(r"^([a-z-]+):", file.read_text(), re.MULTILINE)}
    named = {name for text in blocks(page, "sh") for name in re.findall(r"^make ([a-z-]+)", text, re.MULTILINE)}
    assert named - targets == set()


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_named_modules_exist(page: Path) -> None:
    named = {name for text in blocks(page, "sh") for name in _MODULE.findall(text)}
    assert [name for name in sorted(named) if find_spec(name) is None] == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_named_files_of_the_repository_exist(page: Path) -> None:
    named = {name for text in blocks(page, "sh") for name in _FILE.findall(text)}
    assert [name for name in sorted(named) if not any(ROOT.glob(name))] == []


def test_routing_rules_of_the_selector_page_are_valid(tmp_path: Path) -> None:
    (rules,) = blocks(Path("services/selector/README.md"), "yaml")
    (tmp_path / "routes.yaml").write_text(rules.replace("scores: scores.yaml", ""))
    table = routing_table.read(tmp_path / "routes.yaml")
    assert {"text-classification", "object-detection", "text-to-speech"} == set(table.routes)

"""The models of each torch expert load in a virtual environment with only its own extra."""

import json
import os
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.utils import canonicalize_name

from tests.readme import MODALITIES
from tests.repositories import WITHOUT_WEIGHTS, Fixture
from tests.repositories.sizes import Repositories
from tests.support.only_extra import DISTRIBUTION, create_environment, needed_distributions
from tests.system.conftest import ROOT
from tests.verification.cards import cards_path, read_cards

pytestmark = pytest.mark.slow

LOADING = """
import json, os, traceback
from importlib import import_module

from experts.host import load_context

def load(modality, card, dtype):
    task, model = card["task"], card["id"]
    context = load_context.LoadContext("", task=task, model_id=model, device="cpu",
                                       compute=load_context.ComputeOptions(dtype=dtype),
                                       pipeline=load_context.PipelineOptions.from_card(card))
    with load_context.use(context):
        import_module(f"experts.{modality}.tasks").TASKS[task](model, "cpu").close()

failures = {}
for card in json.loads(os.environ["CARDS"]):
    try:
        load(*card)
    except Exception as error:
        failures[card[1]["id"]] = traceback.format_exception_only(error)[-1]
print(json.dumps(failures))
"""
_MAPS = ("depth", "hed", "mlsd", "normal", "openpose", "scribble", "seg")
SIMILAR = frozenset(f"lllyasviel/sd-controlnet-{name}" for name in _MAPS)
"""Models whose repositories differ from another one's only in the numbers."""


LISTING = """
import json, sys
from importlib import metadata
print(json.dumps([sys.prefix, *(distribution.name for distribution in metadata.distributions())]))
"""


def run(python: Path, program: str, settings: Mapping[str, str] | None = None) -> Any:
    """Runs a program in the checkout; returns the JSON of its last line."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **(settings or {})}
    process = subprocess.run(
        [python, "-c", program], env=variables, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr[-2000:]
    return json.loads(process.stdout.splitlines()[-1])


@pytest.mark.parametrize("modality", MODALITIES)
def test_models_load_with_only_their_own_extra(modality: str, tmp_path: Path) -> None:
    repositories, chosen = Repositories(tmp_path / "models"), {}
    for card in read_cards(cards_path(f"experts.{modality}")):
        if card["id"] not in WITHOUT_WEIGHTS | SIMILAR:
            repositories.build(card["id"])
            chosen[card["id"]] = (modality, card, Fixture.read(card["id"]).dtype)
    settings = {
        "EXPERT_MODELS_URL": str(repositories.folder),
        "HF_HUB_OFFLINE": "1",
        "CARDS": json.dumps([*chosen.values()]),
    }
    assert run(create_environment(modality, tmp_path / "environment"), LOADING, settings) == {}


def test_environment_has_the_distributions_of_its_extra_and_no_others(tmp_path: Path) -> None:
    prefix, *names = run(create_environment("vision", tmp_path / "environment"), LISTING)
    installed = {canonicalize_name(distribution.name) for distribution in metadata.distributions()}
    expected = needed_distributions("vision") & installed
    assert prefix == str(tmp_path / "environment")
    assert {canonicalize_name(name) for name in names} | {DISTRIBUTION} == expected | {DISTRIBUTION}
    assert installed - expected

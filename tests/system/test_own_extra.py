"""The models of each torch expert load where only its own extra is installed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.readme import MODALITIES
from tests.repositories import WITHOUT_WEIGHTS, Fixture
from tests.repositories.sizes import Repositories
from tests.support.only_extra import needed_distributions
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


@pytest.mark.parametrize("modality", MODALITIES)
def test_models_load_with_only_their_own_extra(modality: str, tmp_path: Path) -> None:
    repositories, chosen = Repositories(tmp_path), {}
    for card in read_cards(cards_path(f"experts.{modality}")):
        if card["id"] not in WITHOUT_WEIGHTS | SIMILAR:
            repositories.build(card["id"])
            chosen[card["id"]] = (modality, card, Fixture.read(card["id"]).dtype)
    settings = {"EXPERT_MODELS_URL": str(tmp_path), "HF_HUB_OFFLINE": "1", "CARDS": json.dumps([*chosen.values()])}
    command = [sys.executable, "-m", "tests.support.only_extra", modality]
    program = subprocess.run(
        command, input=LOADING, env={**os.environ, **settings}, capture_output=True, text=True, check=False
    )
    assert program.returncode == 0, program.stderr[-2000:]
    assert json.loads(program.stdout.splitlines()[-1]) == {}


@pytest.mark.parametrize(("extra", "absent"), [("vision", "pandas"), ("text", "diffusers"), ("audio", "pandas")])
def test_packages_of_other_extras_are_hidden(extra: str, absent: str) -> None:
    program = f"import importlib.util; print(importlib.util.find_spec({absent!r}) is None)"
    command = [sys.executable, "-m", "tests.support.only_extra", extra]
    hidden = subprocess.run(command, input=program, capture_output=True, text=True, check=True)
    assert absent not in needed_distributions(extra)
    assert hidden.stdout == "True\n"

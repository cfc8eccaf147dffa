"""Offers of the lite expert, and lazy loading of its engines."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from experts.host.expert import Offer, read_expert
from experts.lite import tasks
from experts.lite.tasks import REQUIRES, TASKS

EXPERT = read_expert("experts.lite")


def test_tasks_are_offered_if_their_engine_is_installed() -> None:
    absent = {model for model, module in REQUIRES.items() if not find_spec(module)}
    missing = TASKS.keys() - {offer.spec.name for offer in EXPERT.offers}
    assert not missing or absent


def test_cards_have_description_licence_and_revision() -> None:
    for offer in EXPERT.offers:
        assert len(offer.card.description) > 80, offer.card.id
        assert offer.card.license, offer.card.id
        assert offer.card.revision, offer.card.id


def test_required_modules_belong_to_models_with_a_card() -> None:
    cards = json.loads((Path(tasks.__file__).parent / "models.json").read_text(encoding="utf-8"))
    assert set(REQUIRES) <= {card["id"] for card in cards}


def test_reading_the_expert_imports_no_engine() -> None:
    heavy = (
        "cv2 numpy PIL onnxruntime rapidocr soundfile pypdfium2 pocketsphinx vaderSentiment py3langid espeakng_loader"
    )
    program = (
        "import sys; from experts.host.expert import read_expert; read_expert('experts.lite'); "
        f"print([name for name in '{heavy}'.split() if name in sys.modules])"
    )
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert child.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("offer", EXPERT.offers, ids=lambda offer: f"{offer.spec.name} {offer.card.id}")
def test_loader_accepts_model_id_of_its_card(offer: Offer) -> None:
    assert offer.loader(offer.card.id, "cpu")

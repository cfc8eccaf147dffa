"""Tasks, model cards and pinned commits of the text expert."""

import re

import pytest

from experts.host.expert import Offer, read_expert
from experts.text.tasks import TASKS
from experts.torch_host.devices import TorchDevices
from protos.hugginggpt.tasks import standard_tasks

pytestmark = pytest.mark.slow

EXPERT = read_expert("experts.text")
COMMIT = re.compile(r"[0-9a-f]{40}")


def test_every_task_has_a_loader_and_a_model() -> None:
    assert {offer.spec.name for offer in EXPERT.offers} == TASKS.keys() <= standard_tasks().keys()


@pytest.mark.parametrize("offer", EXPERT.offers, ids=lambda offer: f"{offer.spec.name} {offer.card.id}")
def test_card_has_description_license_languages_and_size(offer: Offer) -> None:
    card = offer.card
    assert len(card.description) > 80
    assert card.license in {"Apache-2.0", "MIT"}
    assert card.languages
    assert card.parameter_count


def test_every_task_of_a_model_pins_the_same_full_commit() -> None:
    by_model: dict[str, set[str]] = {}
    for offer in EXPERT.offers:
        by_model.setdefault(offer.card.id, set()).add(offer.card.revision)
    assert all(len(revisions) == 1 for revisions in by_model.values())
    pinned = {model for model, (revision,) in by_model.items() if COMMIT.fullmatch(revision)}
    assert by_model.keys() - pinned == {
        "google/tapas-base-finetuned-wtq",
        "ibm-granite/granite-embedding-small-english-r2",
    }


def test_unpinned_card_has_the_commit_of_the_local_model() -> None:
    (card,) = [offer.card for offer in EXPERT.offers if offer.card.id == "google/tapas-base-finetuned-wtq"]
    assert card.revision == TorchDevices().commit(card.id)

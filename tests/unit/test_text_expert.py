"""The text expert as a whole: what it offers, and at which commits."""

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
def test_a_card_says_when_to_choose_the_model_and_under_which_licence(offer: Offer) -> None:
    card = offer.card
    assert len(card.description) > 80
    assert card.license in {"apache-2.0", "mit"}
    assert card.languages
    assert card.parameter_count


def test_commits_are_whole_and_the_same_for_every_task_of_a_model() -> None:
    by_model: dict[str, set[str]] = {}
    for offer in EXPERT.offers:
        by_model.setdefault(offer.card.id, set()).add(offer.card.revision)
    assert all(len(revisions) == 1 for revisions in by_model.values())
    pinned = {model for model, (revision,) in by_model.items() if COMMIT.fullmatch(revision)}
    assert by_model.keys() - pinned == {"google/tapas-base-finetuned-wtq", "facebook/m2m100_418M"}


def test_a_model_that_is_not_here_is_at_no_commit_until_it_is_loaded() -> None:
    (card,) = [offer.card for offer in EXPERT.offers if offer.card.id == "google/tapas-base-finetuned-wtq"]
    assert card.revision == TorchDevices().commit(card.id)

"""Memory classes of cards: order and marks by the memory of a machine's GPU."""

import pytest

from experts.host.memory_class import check_class, order_for_memory
from protos.hugginggpt.v1.model_pb2 import ModelCard

CARDS = [
    ModelCard(id="large", memory_class="80GB"),
    ModelCard(id="small", memory_class="cpu"),
    ModelCard(id="unknown"),
    ModelCard(id="medium", memory_class="24GB"),
]


@pytest.mark.parametrize(
    ("gigabytes", "order", "exceeding"),
    [
        (0, ["small", "unknown", "medium", "large"], {"medium", "large"}),
        (24, ["medium", "small", "unknown", "large"], {"large"}),
        (23, ["medium", "small", "unknown", "large"], {"large"}),
        (85, ["large", "medium", "small", "unknown"], set()),
    ],
)
def test_largest_models_that_fit_come_first(gigabytes: int, order: list[str], exceeding: set[str]) -> None:
    ordered = order_for_memory(CARDS, gigabytes * 10**9)
    assert [card.id for card in ordered] == order
    assert {card.id for card in ordered if card.exceeds_memory} == exceeding


def test_given_cards_are_not_changed() -> None:
    order_for_memory(CARDS, 0)
    assert not any(card.exceeds_memory for card in CARDS)


def test_unknown_class_is_named() -> None:
    with pytest.raises(ValueError, match="memory_class of model m is '16GB'; choose one of cpu, 8GB"):
        check_class(ModelCard(id="m", memory_class="16GB"))

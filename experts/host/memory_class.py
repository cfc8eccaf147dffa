"""Memory classes of cards: for which memory a model is the choice, and which models a machine would run."""

from collections.abc import Iterable, Mapping

from protos.hugginggpt.v1.model_pb2 import ModelCard

CLASS_BYTES: Mapping[str, int] = {"cpu": 0, "8GB": 8 * 10**9, "24GB": 24 * 10**9, "80GB": 80 * 10**9}
"""Memory of the GPU that a class needs."""
_SHARE = 0.9
"""GPUs sold as 8 GB have a little less."""


def check_class(card: ModelCard) -> None:
    """Checks the class of a card.

    Raises:
        ValueError: names the model and the classes.
    """
    if card.memory_class not in ("", *CLASS_BYTES):
        raise ValueError(
            f"memory_class of model {card.id} is {card.memory_class!r}; choose one of {', '.join(CLASS_BYTES)}"
        )


def order_for_memory(cards: Iterable[ModelCard], gpu_bytes: int) -> list[ModelCard]:
    """Returns the cards with what fits first, the largest class of it first, and marks those that do not fit.

    Cards of one class keep their order. A card without a class fits everywhere, and counts as the smallest class.

    Args:
        cards: of one expert.
        gpu_bytes: memory of the machine's largest GPU; 0 without one.
    """
    needed = {name: size * _SHARE for name, size in CLASS_BYTES.items()}
    marked = []
    for card in cards:
        copy = ModelCard()
        copy.CopyFrom(card)
        copy.exceeds_memory = needed.get(card.memory_class, 0.0) > gpu_bytes
        marked.append(copy)
    return sorted(marked, key=lambda card: (card.exceeds_memory, _rank(card)))


def _rank(card: ModelCard) -> float:
    size = CLASS_BYTES.get(card.memory_class, 0)
    return size if card.exceeds_memory else -size

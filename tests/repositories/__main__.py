"""`python -m tests.repositories` writes the sizes of all models to their cards, from the fixtures."""

import tempfile
from pathlib import Path

from tests.readme import MODALITIES
from tests.repositories import fixture_ids
from tests.repositories.sizes import Repositories, card_sizes
from tests.verification.cards import cards_path, read_cards, write_cards

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        repositories = Repositories(Path(folder))
        for name in MODALITIES:
            path = cards_path(f"experts.{name}")
            cards = read_cards(path)
            for card in cards:
                if card["id"] in fixture_ids():
                    card.update(card_sizes(card, repositories))
            write_cards(path, cards)

"""Which language a text is written in, by its letters (py3langid)."""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from experts.lite.shared_engine import Shared

_READ = 20_000
"""More characters change nothing but the time it takes."""


class Identifier:
    """Knows the languages of languages.json apart. Calls may run side by side."""

    def __init__(self) -> None:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        self._engine = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        self._engine.set_languages([tag for tag in names() if tag in self._engine.labels])

    def rank(self, text: str) -> list[tuple[str, float]]:
        """BCP 47 tags with their probabilities, best first."""
        return [(str(tag), float(probability)) for tag, probability in self._engine.rank(text[:_READ])]


identifier = Shared(Identifier)


@cache
def names() -> Mapping[str, str]:
    """English names of languages by BCP 47 tag."""
    table: dict[str, str] = json.loads((files(__package__) / "languages.json").read_text(encoding="utf-8"))
    return table

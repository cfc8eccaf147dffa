"""Language detection of a text (py3langid)."""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from experts.lite.shared_engine import SharedEngine

_ANALYSED_CHARACTERS = 20_000
"""Number of characters that are analysed; more take longer without a better result."""


class LanguageDetector:
    """Detects the languages of languages.json; thread-safe."""

    def __init__(self) -> None:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        self._engine = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        self._engine.set_languages([tag for tag in load_language_names() if tag in self._engine.labels])

    def rank(self, text: str) -> list[tuple[str, float]]:
        """Returns BCP 47 tags with their probabilities, best first."""
        return [(str(tag), float(probability)) for tag, probability in self._engine.rank(text[:_ANALYSED_CHARACTERS])]


language_detector = SharedEngine(LanguageDetector)


@cache
def load_language_names() -> Mapping[str, str]:
    """Returns the English names of languages by BCP 47 tag."""
    table: dict[str, str] = json.loads((files(__package__) / "languages.json").read_text(encoding="utf-8"))
    return table

"""Table of languages by name, BCP 47 tag and FLORES code, and detection of a text's language."""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from threading import Lock
from typing import Any

_MAX_CHARACTERS = 20_000
"""Maximum characters for language detection; more only take longer."""
_PARENTHESES = re.compile(r"\s*\(.*?\)")


@dataclass(frozen=True)
class Language:
    """One language."""

    tag: str
    """BCP 47, such as de."""
    names: tuple[str, ...]
    """Names of the language, the English one first."""
    flores: str
    """FLORES code as in NLLB, such as deu_Latn."""

    @property
    def name(self) -> str:
        return self.names[0]


@cache
def languages() -> Mapping[str, Language]:
    """Returns all known languages by tag."""
    table = json.loads((files(__package__) / "languages.json").read_text(encoding="utf-8"))
    return {tag: Language(tag, tuple(names), flores) for tag, (flores, *names) in table.items()}


def find_language(name: str) -> Language | None:
    """Returns the language of a name, tag or code: German, Deutsch, de, de-AT, deu, deu_Latn."""
    plain = _PARENTHESES.sub("", name).strip().casefold().replace("_", "-")
    return _languages_by_name().get(plain) or _languages_by_name().get(plain.partition("-")[0])


def detect_language(text: str, candidates: Collection[str]) -> str | None:
    """Returns the most likely language of a text among candidate tags; None if the detector knows none of them."""
    with _lock:  # the set of languages is state of the shared engine
        engine = _engine()
        supported = [tag for tag in candidates if tag in engine.labels]
        if not supported:
            return None
        engine.set_languages(supported)
        return str(engine.classify(text[:_MAX_CHARACTERS])[0])


_lock = Lock()


@cache
def _engine() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


@cache
def _languages_by_name() -> Mapping[str, Language]:
    by_name: dict[str, Language] = {}
    for language in languages().values():
        for name in (language.tag, language.flores.replace("_", "-"), language.flores[:3], *language.names):
            by_name.setdefault(name.casefold(), language)
    return by_name

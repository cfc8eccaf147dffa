"""Languages as people name them, as standards tag them and as translation models do."""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from threading import Lock
from typing import Any

_READ = 20_000
"""More characters change nothing but the time it takes to recognise a language."""
_ASIDE = re.compile(r"\s*\(.*?\)")


@dataclass(frozen=True)
class Language:
    """One language."""

    tag: str
    """BCP 47, such as de."""
    names: tuple[str, ...]
    """The English one first."""
    flores: str
    """As in NLLB, such as deu_Latn."""

    @property
    def name(self) -> str:
        return self.names[0]


@cache
def languages() -> Mapping[str, Language]:
    """Those that are known, by tag."""
    table = json.loads((files(__package__) / "languages.json").read_text(encoding="utf-8"))
    return {tag: Language(tag, tuple(names), flores) for tag, (flores, *names) in table.items()}


def named(said: str) -> Language | None:
    """The language of a name or tag: German, Deutsch, de, de-AT, deu, deu_Latn."""
    plain = _ASIDE.sub("", said).strip().casefold().replace("_", "-")
    return _by_name().get(plain) or _by_name().get(plain.partition("-")[0])


def recognised(text: str, among: Collection[str]) -> str | None:
    """The tag of the language a text is most likely written in; nothing if none of those can be told apart."""
    with _lock:  # the engine keeps the choice of languages
        engine = _engine()
        possible = [tag for tag in among if tag in engine.labels]
        if not possible:
            return None
        engine.set_languages(possible)
        return str(engine.classify(text[:_READ])[0])


_lock = Lock()


@cache
def _engine() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


@cache
def _by_name() -> Mapping[str, Language]:
    found: dict[str, Language] = {}
    for language in languages().values():
        for name in (language.tag, language.flores.replace("_", "-"), language.flores[:3], *language.names):
            found.setdefault(name.casefold(), language)
    return found

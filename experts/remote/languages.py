"""Source languages of translations that name only a target (py3langid)."""

from collections.abc import Collection
from functools import cache
from threading import Lock
from typing import Any

from experts.host.handler import Inputs, Parameters

_ANALYSED_CHARACTERS = 20_000
"""Number of characters of a text that are analysed; more take longer without a better result."""


def add_source_language(inputs: Inputs, parameters: Parameters, languages: Collection[str]) -> Parameters:
    """Adds the detected source language to a translation's parameters: providers take both languages or none.

    Args:
        inputs: inputs with the text.
        parameters: parameters of the translation.
        languages: two-letter tags of the model's languages; empty if unknown.
    """
    if "target_language" not in parameters or "source_language" in parameters:
        return parameters
    target = str(parameters["target_language"]).partition("-")[0].lower()
    candidates = {language.lower() for language in languages if language.lower() != target}
    return {**parameters, "source_language": detect_language(str(inputs["text"]), candidates)}


def detect_language(text: str, candidates: Collection[str] = ()) -> str:
    """Returns the BCP 47 tag of a text's most likely language.

    Args:
        text: any text.
        candidates: tags to choose from; empty: all of the engine's.
    """
    with _lock:  # the engine stores the choice of languages
        engine = _engine()
        known = [tag for tag in _all_tags() if tag in candidates]
        if len(known) == 1:
            return known[0]
        engine.set_languages(known or list(_all_tags()))
        return str(engine.classify(text[:_ANALYSED_CHARACTERS])[0])


_lock = Lock()


@cache
def _engine() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


@cache
def _all_tags() -> tuple[str, ...]:
    return tuple(map(str, _engine().labels))

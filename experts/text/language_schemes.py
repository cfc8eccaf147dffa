"""How source and target language are passed to a translation model, by model family."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from experts.text.languages import Language, find_language, languages
from services.common.errors import FailedPrecondition

_CODES = (re.compile(r"([a-z]{2,3})"), re.compile(r"([a-z]{3}_[A-Z][a-z]{3})"), re.compile(r"([a-z]{2})_[A-Z]{2}"))
"""Language codes of M2M100, NLLB and mBART."""
_MADLAD = re.compile(r"<2([a-zA-Z_]{2,8})>")
_T5 = re.compile(r"translation_(\w\w)_to_(\w\w)")
_MARIAN = re.compile(r"-([a-z]{2,3})-([a-z]{2,3})$")


@dataclass(frozen=True)
class LanguageScheme:
    """Languages of one model, and how they are passed to it. Languages are BCP 47 tags."""

    sources: Mapping[str, str]
    """Source languages, from tag to the model's own code; empty if the model detects the language itself."""
    targets: Mapping[str, str]
    """Target languages, from tag to the model's own code."""
    pairs: frozenset[tuple[str, str]] = frozenset()
    """Supported pairs of source and target; empty if all are supported."""
    tokenizer: Any = None
    lock: Lock = field(default_factory=Lock)

    def encode(self, text: str, source: str, target: str) -> list[int]:
        """Returns the encoder's input tokens for a text."""
        raise NotImplementedError

    def options(self, target: str) -> dict[str, Any]:  # noqa: ARG002  # most models take the language from the input tokens
        """Returns the options of `generate` for a target language."""
        return {}


@dataclass(frozen=True)
class MarianScheme(LanguageScheme):
    """Marian: one source language, and one target language or several; of several, the text's prefix names the one."""

    is_target_prefixed: bool = False

    def encode(self, text: str, source: str, target: str) -> list[int]:  # noqa: ARG002
        prompt = f">>{self.targets[target]}<< {text}" if self.is_target_prefixed else text
        tokens: list[int] = self.tokenizer(prompt).input_ids
        return tokens


@dataclass(frozen=True)
class LanguageTokenScheme(LanguageScheme):
    """M2M100, NLLB, mBART: the text starts with a token of its language, and so does the translation."""

    token_ids: Mapping[str, int] = field(default_factory=dict)

    def encode(self, text: str, source: str, target: str) -> list[int]:  # noqa: ARG002
        with self.lock:  # src_lang is an attribute of the shared tokenizer
            self.tokenizer.src_lang = self.sources[source]
            tokens: list[int] = self.tokenizer(text).input_ids
        return tokens

    def options(self, target: str) -> dict[str, Any]:
        return {"forced_bos_token_id": self.token_ids[target]}


@dataclass(frozen=True)
class PrefixScheme(LanguageScheme):
    """T5 and MADLAD: a prefix of the text states the languages."""

    template: str = ""

    def encode(self, text: str, source: str, target: str) -> list[int]:
        prefix = self.template.format(self.sources.get(source, ""), self.targets[target])
        tokens: list[int] = self.tokenizer(prefix + text).input_ids
        return tokens


def find_scheme(tokenizer: Any, config: Any, model_id: str) -> LanguageScheme:
    """Returns the language scheme of a model.

    Raises:
        FailedPrecondition: LOAD_FAILED, the model's family is unknown.
    """
    scheme = (
        _marian_scheme(tokenizer, config, model_id)
        or _language_token_scheme(tokenizer)
        or _madlad_scheme(tokenizer)
        or _t5_scheme(tokenizer, config)
    )
    if scheme is None:
        raise FailedPrecondition(
            f"{model_id} is of no supported family of translation models",
            reason="LOAD_FAILED",
            remedy="use a model of the families Marian (opus-mt), M2M100, NLLB, mBART-50, MADLAD-400 or T5",
        )
    return scheme


def _marian_scheme(tokenizer: Any, config: Any, model_id: str) -> LanguageScheme | None:
    if config.model_type != "marian":
        return None
    match = _MARIAN.search(model_id)
    names = match.groups() if match else (tokenizer.source_lang, tokenizer.target_lang)
    source, target = (find_language(str(name)) for name in names)
    codes = [code.strip("<>") for code in tokenizer.supported_language_codes]
    targets = _codes_by_tag((code, code) for code in codes) or _codes_by_tag(
        [(str(names[1]), target.tag)] if target else []
    )
    sources = {source.tag: source.tag} if source else {}
    return MarianScheme(sources, targets, tokenizer=tokenizer, is_target_prefixed=bool(codes)) if targets else None


def _language_token_scheme(tokenizer: Any) -> LanguageScheme | None:
    if not hasattr(tokenizer, "src_lang"):
        return None
    ids: Mapping[str, int] = getattr(tokenizer, "lang_code_to_id", None) or tokenizer.added_tokens_encoder
    names = {code: match[1] for code in ids for pattern in _CODES if (match := pattern.fullmatch(code))}
    codes = _codes_by_tag((name, code) for code, name in names.items())
    token_ids = {tag: ids[code] for tag, code in codes.items()}
    return LanguageTokenScheme(codes, codes, tokenizer=tokenizer, token_ids=token_ids) if codes else None


def _madlad_scheme(tokenizer: Any) -> LanguageScheme | None:
    targets = _codes_by_tag(
        (match[1], match[0]) for token in tokenizer.get_vocab() if (match := _MADLAD.fullmatch(token))
    )
    return PrefixScheme({}, targets, tokenizer=tokenizer, template="{1} ") if targets else None


def _t5_scheme(tokenizer: Any, config: Any) -> LanguageScheme | None:
    params_by_task = getattr(config, "task_specific_params", None) or {}
    pairs = frozenset(match.groups() for name in params_by_task if (match := _T5.fullmatch(name)))
    if not pairs:
        return None
    sources, targets = ({tag: languages()[tag].name for tag in tags} for tags in zip(*pairs, strict=True))
    return PrefixScheme(sources, targets, pairs, tokenizer, template="translate {} to {}: ")  # type: ignore[arg-type]  # two groups make pairs


def _codes_by_tag(codes: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Converts pairs of language name and model's code to codes by tag; unknown languages are omitted."""
    by_tag: dict[str, str] = {}
    for name, code in codes:
        language = _find_exact_language(name)
        if language:
            by_tag.setdefault(language.tag, code)
    return by_tag


def _find_exact_language(name: str) -> Language | None:
    """Returns the language of a name; None for a FLORES code with another script than the language's usual one."""
    language = find_language(name)
    if language and re.fullmatch(r"[a-z]{3}_[A-Z][a-z]{3}", name) and language.flores != name:
        return None
    return language

"""How source and target language are passed to a translation model, by model family."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from experts.text.languages import Language, languages, named
from services.common.errors import FailedPrecondition

_CODES = (re.compile(r"([a-z]{2,3})"), re.compile(r"([a-z]{3}_[A-Z][a-z]{3})"), re.compile(r"([a-z]{2})_[A-Z]{2}"))
"""How M2M100, NLLB and mBART write a language."""
_MADLAD = re.compile(r"<2([a-zA-Z_]{2,8})>")
_T5 = re.compile(r"translation_(\w\w)_to_(\w\w)")
_MARIAN = re.compile(r"-([a-z]{2,3})-([a-z]{2,3})$")


@dataclass(frozen=True)
class Scheme:
    """One model's way."""

    sources: Mapping[str, str]
    """Languages it reads, tag to the model's own code; empty if it reads whatever comes."""
    targets: Mapping[str, str]
    """Languages it writes."""
    pairs: frozenset[tuple[str, str]] = frozenset()
    """Of source and target; empty if all go together."""
    tokenizer: Any = None
    lock: Lock = field(default_factory=Lock)

    def tokens(self, text: str, source: str, target: str) -> list[int]:
        """What the encoder reads; source and target are tags."""
        raise NotImplementedError

    def options(self, target: str) -> dict[str, Any]:  # noqa: ARG002  # most models read the language from the text
        """Returns the options of `generate` for a target language."""
        return {}


@dataclass(frozen=True)
class Pair(Scheme):
    """Marian: one language in, one out; or several out, the one wanted being named first."""

    named_first: bool = False

    def tokens(self, text: str, source: str, target: str) -> list[int]:  # noqa: ARG002
        words = f">>{self.targets[target]}<< {text}" if self.named_first else text
        tokens: list[int] = self.tokenizer(words).input_ids
        return tokens


@dataclass(frozen=True)
class Tagged(Scheme):
    """M2M100, NLLB, mBART: a token for the language goes before the text, and another begins the translation."""

    tags: Mapping[str, int] = field(default_factory=dict)

    def tokens(self, text: str, source: str, target: str) -> list[int]:  # noqa: ARG002
        with self.lock:  # the tokenizer keeps the source
            self.tokenizer.src_lang = self.sources[source]
            tokens: list[int] = self.tokenizer(text).input_ids
        return tokens

    def options(self, target: str) -> dict[str, Any]:
        return {"forced_bos_token_id": self.tags[target]}


@dataclass(frozen=True)
class TextScheme(Scheme):
    """T5 and MADLAD: words or a token before the text say what is wanted."""

    form: str = ""

    def tokens(self, text: str, source: str, target: str) -> list[int]:
        said = self.form.format(self.sources.get(source, ""), self.targets[target])
        tokens: list[int] = self.tokenizer(said + text).input_ids
        return tokens


def scheme_of(tokenizer: Any, config: Any, model_id: str) -> Scheme:
    """The scheme of a model.

    Raises:
        FailedPrecondition: LOAD_FAILED, it has none that is known.
    """
    scheme = _marian(tokenizer, config, model_id) or _tagged(tokenizer) or _madlad(tokenizer) or _t5(tokenizer, config)
    if scheme is None:
        raise FailedPrecondition(
            f"{model_id} has no known format for its languages",
            reason="LOAD_FAILED",
            remedy="take a model of the families Marian (opus-mt), M2M100, NLLB, mBART-50, MADLAD-400 or T5",
        )
    return scheme


def _marian(tokenizer: Any, config: Any, model_id: str) -> Scheme | None:
    if config.model_type != "marian":
        return None
    match = _MARIAN.search(model_id)
    said = match.groups() if match else (tokenizer.source_lang, tokenizer.target_lang)
    source, target = (named(str(one)) for one in said)
    codes = [code.strip("<>") for code in tokenizer.supported_language_codes]
    targets = _by_tag((code, code) for code in codes) or _by_tag([(str(said[1]), target.tag)] if target else [])
    sources = {source.tag: source.tag} if source else {}
    return Pair(sources, targets, tokenizer=tokenizer, named_first=bool(codes)) if targets else None


def _tagged(tokenizer: Any) -> Scheme | None:
    if not hasattr(tokenizer, "src_lang"):
        return None
    ids: Mapping[str, int] = getattr(tokenizer, "lang_code_to_id", None) or tokenizer.added_tokens_encoder
    named_by = {code: match[1] for code in ids for form in _CODES if (match := form.fullmatch(code))}
    codes = _by_tag((name, code) for code, name in named_by.items())
    tags = {tag: ids[code] for tag, code in codes.items()}
    return Tagged(codes, codes, tokenizer=tokenizer, tags=tags) if codes else None


def _madlad(tokenizer: Any) -> Scheme | None:
    targets = _by_tag((match[1], match[0]) for token in tokenizer.get_vocab() if (match := _MADLAD.fullmatch(token)))
    return TextScheme({}, targets, tokenizer=tokenizer, form="{1} ") if targets else None


def _t5(tokenizer: Any, config: Any) -> Scheme | None:
    advice = getattr(config, "task_specific_params", None) or {}
    pairs = frozenset(match.groups() for name in advice if (match := _T5.fullmatch(name)))
    if not pairs:
        return None
    sources, targets = ({tag: languages()[tag].name for tag in tags} for tags in zip(*pairs, strict=True))
    return TextScheme(sources, targets, pairs, tokenizer, form="translate {} to {}: ")  # type: ignore[arg-type]  # two groups make pairs


def _by_tag(codes: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Of (what names a language, the model's own code), the codes by tag; unknown languages are left out."""
    found: dict[str, str] = {}
    for name, code in codes:
        language = _exactly(name)
        if language:
            found.setdefault(language.tag, code)
    return found


def _exactly(name: str) -> Language | None:
    """A script of a language that is not its usual one is no match."""
    language = named(name)
    if language and re.fullmatch(r"[a-z]{3}_[A-Z][a-z]{3}", name) and language.flores != name:
        return None
    return language

"""Translations, sentence by sentence, so that none is left out and the text keeps its lines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experts.host.handler import Call, Handler, Inputs, Outputs, Parameters
from experts.host.parameters import port_of
from experts.text.language_tokens import Scheme, scheme_of
from experts.text.languages import Language, languages, named, recognised
from experts.text.text_chunks import fitted, sentences
from experts.text.token_windows import MOST_WINDOWS, too_long
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.generation import generate_tokens
from experts.torch_host.padding import pad_rows, run_in_passes
from experts.torch_host.token_limits import max_input_tokens
from experts.torch_host.torch_handler import TorchHandler
from services.common.errors import InvalidRequest

USUAL_TARGET = "en"
_CHARACTERS_PER_TOKEN = 24
_SPREAD = 2
"""A translation may have that many times the tokens of its sentence, and some more."""
_SOME = 24
_UNSPACED = frozenset({"zh", "zh-Hant", "ja", "th", "lo", "km", "my"})
"""No space between the sentences of these."""
_SHOWN = 12


@dataclass(frozen=True)
class Sentence:
    """One sentence as the model reads it."""

    tokens: list[int]
    gap: str
    """White space after it."""


@dataclass(frozen=True)
class Text:
    """One caller's text."""

    sentences: list[Sentence]
    target: str


def translation(model_id: str, device: str) -> Handler:
    """Marian, M2M100, NLLB, mBART-50, MADLAD-400 or T5.

    Raises:
        FailedPrecondition: LOAD_FAILED, also for any other model.
    """
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    checkpoint = Checkpoint.fetch(model_id, device)
    tokenizer = checkpoint.processor(AutoTokenizer)
    model = checkpoint.model(AutoModelForSeq2SeqLM)
    return Translator(checkpoint, model, tokenizer, scheme_of(tokenizer, model.config, model_id))


class Translator(TorchHandler):
    def __init__(self, checkpoint: Checkpoint, model: Any, tokenizer: Any, scheme: Scheme) -> None:
        super().__init__(checkpoint, model)
        self._tokenizer, self._scheme = tokenizer, scheme
        self._longest = max_input_tokens(tokenizer, model.config)

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Text:
        text = inputs["text"]
        source, target = self._languages(text, parameters)
        if len(text) > MOST_WINDOWS * self._longest * _CHARACTERS_PER_TOKEN:
            raise too_long(self.model_id, "text", f"{len(text)} characters", self._limit())

        def count(piece: str) -> int:
            return len(self._scheme.tokens(piece, source, target))

        pieces = fitted(sentences(text), count, self._longest)
        rows = [Sentence(self._scheme.tokens(piece.text, source, target), piece.gap) for piece in pieces]
        if (length := sum(len(row.tokens) for row in rows)) > MOST_WINDOWS * self._longest:
            raise too_long(self.model_id, "text", f"{length} tokens", self._limit())
        return Text(rows, target)

    def cost(self, item: Text) -> float:
        return sum(len(one.tokens) for one in item.sentences)

    def run(self, items: Sequence[Text], call: Call) -> list[tuple[list[list[int]], Text]]:
        options = self._scheme.options(items[0].target)
        texts = [item.sentences for item in items]
        alone = sum(map(len, texts)) == 1

        def compute(rows: Sequence[Sentence]) -> list[list[int]]:
            batch = [{"input_ids": row.tokens, "attention_mask": [1] * len(row.tokens)} for row in rows]
            found = generate_tokens(
                self.model,
                pad_rows(batch, self._tokenizer.pad_token_id),
                call,
                max_new_tokens=_room(rows[0], self._longest),
                model_id=self.model_id,
                report_progress=alone,
                **options,
            )
            return [row[1:] if row[:1] == [options.get("forced_bos_token_id")] else row for row in found]

        def room(row: Sentence) -> int:
            return _room(row, self._longest)

        translated = run_in_passes(texts, lambda row: len(row.tokens), compute, call, kind=room)
        return list(zip(translated, items, strict=False))

    def finish(self, raw: tuple[list[list[int]], Text]) -> Outputs:
        translated, item = raw
        said = ""
        for tokens, sentence in zip(translated, item.sentences, strict=True):
            text = self._tokenizer.decode(tokens, skip_special_tokens=True).strip()
            gap = "" if item.target in _UNSPACED and "\n" not in sentence.gap else sentence.gap
            said += text + gap
        return {"text": said.strip()}

    def _languages(self, text: str, parameters: Parameters) -> tuple[str, str]:
        """Tags of source and target.

        Raises:
            InvalidRequest: a language is not known, or not to this model.
        """
        scheme = self._scheme
        source = self._named("source_language", parameters, scheme.sources)
        target = self._named("target_language", parameters, scheme.targets)
        if target is None:
            target = next(iter(scheme.targets)) if len(scheme.targets) == 1 else USUAL_TARGET
        if source is None and scheme.sources:
            source = recognised(text, scheme.sources) if len(scheme.sources) > 1 else next(iter(scheme.sources))
        if target not in scheme.targets or source == target or (scheme.pairs and (source, target) not in scheme.pairs):
            raise self._cannot(source, target)
        return source or "", target

    def _named(self, parameter: str, parameters: Parameters, known: Mapping[str, str]) -> str | None:
        said = parameters.get(parameter)
        if not said or not said.strip():
            return None
        language = named(said)
        tag = _nearest(language, known) if language else None
        if tag is None and (known or language is None):
            what = f"{self.model_id} does not know it" if language else "it is no language that is known here"
            shown = ", ".join(sorted(languages()[tag].name for tag in known)[:_SHOWN])
            rest = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
            remedy = f"it knows {shown}{rest}" if known else "give its English name or BCP 47 tag"
            complaint = f"parameter {parameter}: {said[:40]!r}: {what}"
            raise InvalidRequest(complaint, port=port_of(parameter), remedy=remedy)
        return tag

    def _cannot(self, source: str | None, target: str) -> InvalidRequest:
        names = [
            languages()[tag].name if tag in languages() else "an unknown language" for tag in (source or "", target)
        ]
        return InvalidRequest(
            f"{self.model_id} does not translate from {names[0]} into {names[1]}",
            port=port_of("target_language"),
            remedy="give source_language and target_language, or take another model",
        )

    def _limit(self) -> str:
        return f"about {MOST_WINDOWS * self._longest} tokens"


def _nearest(language: Language, known: Mapping[str, str]) -> str | None:
    plain = language.tag.partition("-")[0]
    return next((tag for tag in (language.tag, plain) if tag in known), None)


def _room(row: Sentence, most: int) -> int:
    """Most tokens of a translation, in steps, so that sentences of like length go together."""
    wanted = len(row.tokens) * _SPREAD + _SOME
    return min(-(-wanted // _SOME) * _SOME, most)

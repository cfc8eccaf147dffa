"""Translation, sentence by sentence: models omit sentences of longer texts. The line breaks of the text remain."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experts.host.handler import Call, Handler, Inputs, Outputs, Parameters
from experts.host.input_validation import parameter_port
from experts.text.language_schemes import LanguageScheme, find_scheme
from experts.text.languages import Language, detect_language, find_language, languages
from experts.text.text_chunks import split_long, split_sentences
from experts.text.token_windows import MAX_WINDOWS, too_large_error
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.generation import generate_tokens
from experts.torch_host.padding import pad_rows, run_in_passes
from experts.torch_host.token_limits import MAX_CHARACTERS_PER_TOKEN, max_input_tokens
from experts.torch_host.torch_handler import TorchHandler
from services.common.errors import InvalidRequest

DEFAULT_TARGET = "en"
_LENGTH_RATIO = 2
"""Maximum tokens of a translation per token of its sentence; _LENGTH_STEP more are allowed."""
_LENGTH_STEP = 24
_UNSPACED = frozenset({"zh", "zh-Hant", "ja", "th", "lo", "km", "my"})
"""Languages without spaces between sentences."""
_MAX_LISTED = 12


@dataclass(frozen=True)
class Sentence:
    """Tokenized sentence, with the white space after it."""

    tokens: list[int]
    gap: str


@dataclass(frozen=True)
class TranslationItem:
    """Text of one call."""

    sentences: list[Sentence]
    target: str


def translation(model_id: str, device: str) -> Handler:
    """Loads Marian, M2M100, NLLB, mBART-50, MADLAD-400 or T5.

    Raises:
        FailedPrecondition: LOAD_FAILED, also for any other model.
    """
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    checkpoint = Checkpoint.fetch(model_id, device)
    tokenizer = checkpoint.processor(AutoTokenizer)
    model = checkpoint.model(AutoModelForSeq2SeqLM)
    return Translator(checkpoint, model, tokenizer, find_scheme(tokenizer, model.config, model_id))


class Translator(TorchHandler):
    def __init__(self, checkpoint: Checkpoint, model: Any, tokenizer: Any, scheme: LanguageScheme) -> None:
        super().__init__(checkpoint, model)
        self._tokenizer, self._scheme = tokenizer, scheme
        self._max_input_tokens = max_input_tokens(tokenizer, model.config)

    def prepare(self, inputs: Inputs, parameters: Parameters) -> TranslationItem:
        text = inputs["text"]
        source, target = self._languages(text, parameters)
        if len(text) > MAX_WINDOWS * self._max_input_tokens * MAX_CHARACTERS_PER_TOKEN:
            raise too_large_error(self.model_id, "text", f"{len(text)} characters", self._limit())

        def count(piece: str) -> int:
            return len(self._scheme.encode(piece, source, target))

        pieces = split_long(split_sentences(text), count, self._max_input_tokens)
        rows = [Sentence(self._scheme.encode(piece.text, source, target), piece.gap) for piece in pieces]
        if (length := sum(len(row.tokens) for row in rows)) > MAX_WINDOWS * self._max_input_tokens:
            raise too_large_error(self.model_id, "text", f"{length} tokens", self._limit())
        return TranslationItem(rows, target)

    def cost(self, item: TranslationItem) -> float:
        return sum(len(sentence.tokens) for sentence in item.sentences)

    def run(self, items: Sequence[TranslationItem], call: Call) -> list[tuple[list[list[int]], TranslationItem]]:
        options = self._scheme.options(items[0].target)
        texts = [item.sentences for item in items]
        is_single = sum(map(len, texts)) == 1

        def compute(rows: Sequence[Sentence]) -> list[list[int]]:
            batch = [{"input_ids": row.tokens, "attention_mask": [1] * len(row.tokens)} for row in rows]
            tokens = generate_tokens(
                self.model,
                pad_rows(batch, self._tokenizer.pad_token_id),
                call,
                max_new_tokens=_max_new_tokens(rows[0], self._max_input_tokens),
                model_id=self.model_id,
                report_progress=is_single,
                **options,
            )
            return [row[1:] if row[:1] == [options.get("forced_bos_token_id")] else row for row in tokens]

        def new_tokens(row: Sentence) -> int:
            return _max_new_tokens(row, self._max_input_tokens)

        translated = run_in_passes(texts, lambda row: len(row.tokens), compute, call, kind=new_tokens)
        return list(zip(translated, items, strict=False))

    def finish(self, raw: tuple[list[list[int]], TranslationItem]) -> Outputs:
        translated, item = raw
        result = ""
        for tokens, sentence in zip(translated, item.sentences, strict=True):
            text = self._tokenizer.decode(tokens, skip_special_tokens=True).strip()
            gap = "" if item.target in _UNSPACED and "\n" not in sentence.gap else sentence.gap
            result += text + gap
        return {"text": result.strip()}

    def _languages(self, text: str, parameters: Parameters) -> tuple[str, str]:
        """Returns the tags of source and target.

        Raises:
            InvalidRequest: a language is unknown, or not supported by this model.
        """
        scheme = self._scheme
        source = self._parse_language("source_language", parameters, scheme.sources)
        target = self._parse_language("target_language", parameters, scheme.targets)
        if target is None:
            target = next(iter(scheme.targets)) if len(scheme.targets) == 1 else DEFAULT_TARGET
        if source is None and scheme.sources:
            source = detect_language(text, scheme.sources) if len(scheme.sources) > 1 else next(iter(scheme.sources))
        if target not in scheme.targets or source == target or (scheme.pairs and (source, target) not in scheme.pairs):
            raise self._unsupported_pair_error(source, target)
        return source or "", target

    def _parse_language(self, parameter: str, parameters: Parameters, supported: Mapping[str, str]) -> str | None:
        name = parameters.get(parameter)
        if not name or not name.strip():
            return None
        language = find_language(name)
        tag = _supported_tag(language, supported) if language else None
        if tag is None and (supported or language is None):
            reason = f"is not supported by {self.model_id}" if language else "is not a known language"
            listed = ", ".join(sorted(languages()[tag].name for tag in supported)[:_MAX_LISTED])
            rest = f" and {len(supported) - _MAX_LISTED} more" if len(supported) > _MAX_LISTED else ""
            remedy = f"choose among {listed}{rest}" if supported else "send its English name or BCP 47 tag"
            message = f"parameter {parameter}: {name[:40]!r} {reason}"
            raise InvalidRequest(message, port=parameter_port(parameter), remedy=remedy)
        return tag

    def _unsupported_pair_error(self, source: str | None, target: str) -> InvalidRequest:
        names = [
            languages()[tag].name if tag in languages() else "an unknown language" for tag in (source or "", target)
        ]
        return InvalidRequest(
            f"{self.model_id} does not translate from {names[0]} into {names[1]}",
            port=parameter_port("target_language"),
            remedy="send source_language and target_language, or use another model",
        )

    def _limit(self) -> str:
        return f"about {MAX_WINDOWS * self._max_input_tokens} tokens"


def _supported_tag(language: Language, supported: Mapping[str, str]) -> str | None:
    plain = language.tag.partition("-")[0]
    return next((tag for tag in (language.tag, plain) if tag in supported), None)


def _max_new_tokens(sentence: Sentence, limit: int) -> int:
    """Returns the maximum tokens of a translation, in steps, so that sentences of similar length share a pass."""
    tokens = len(sentence.tokens) * _LENGTH_RATIO + _LENGTH_STEP
    return min(-(-tokens // _LENGTH_STEP) * _LENGTH_STEP, limit)

"""Text to speech: VITS and MMS generate waveforms, SpeechT5 spectrograms, and Dia tokens of an audio codec."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experts.audio.languages import to_iso_639_3
from experts.audio.random_seed import use_seed
from experts.audio.voice_conversion import Voices, fetch_vocoder
from experts.audio.waveforms import encode_recording
from experts.host import load_context
from experts.host.handler import UNBATCHED, Call, Handler, Inputs, Outputs, Parameters
from experts.host.input_validation import parameter_port
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.devices import inference_context
from experts.torch_host.torch_handler import TorchHandler
from services.common.errors import FailedPrecondition, InvalidRequest

MAX_CHARACTERS = 10_000

_MAX_PIECE_CHARACTERS = 300
"""Maximum characters of one forward pass: models are trained with sentences."""
_PAUSE_SECONDS = 0.2
"""Silence between two pieces."""
_SENTENCE = re.compile(r"(?<=[.!?…。！？])\s+|\n+")
_SEED = 0
_SPACE = "▁"
"""SentencePiece's notation of a space."""
CODEC, CODEC_COMMIT = "descript/dac_44khz", "c1bc521685adf9cfe247bc39a5ca58917eda1ac4"
"""Audio codec of Dia."""
_SPEAKERS = ("[S1]", "[S2]")
"""Tags with which a text for Dia names the speaker of what follows."""


@dataclass(frozen=True)
class SpeechItem:
    """Text of one call with voice and speed."""

    rows: list[list[int]]
    """Tokens by piece."""
    voice: Any
    speed: float


def text_to_speech(model_id: str, device: str) -> Handler:
    """Loads VITS (and MMS), SpeechT5 or Dia.

    Raises:
        FailedPrecondition: LOAD_FAILED, it is none of them, or it needs a package that is not installed.
    """
    from transformers import AutoConfig, AutoTokenizer, SpeechT5ForTextToSpeech, SpeechT5HifiGan, VitsModel

    checkpoint = Checkpoint.fetch(model_id, device)
    config = checkpoint.processor(AutoConfig)
    if config.model_type == "vits":
        tokenizer = checkpoint.processor(AutoTokenizer)
        _check_packages(tokenizer, model_id)
        return VitsSynthesizer(checkpoint, checkpoint.model(VitsModel), tokenizer)
    if config.model_type == "speecht5":
        tokenizer, vocoder = checkpoint.processor(AutoTokenizer), fetch_vocoder(checkpoint)
        model = checkpoint.model(SpeechT5ForTextToSpeech)
        return SpeechT5Synthesizer(checkpoint, model, tokenizer, vocoder.model(SpeechT5HifiGan))
    if config.model_type == "dia":
        return _load_dia(checkpoint)
    raise FailedPrecondition(
        f"{model_id} is of type {config.model_type}, which is not supported for text to speech",
        reason="LOAD_FAILED",
        remedy="use a VITS, MMS, SpeechT5 or Dia model",
    )


def _load_dia(checkpoint: Checkpoint) -> Handler:
    import torch
    from transformers import DacModel, DiaFeatureExtractor, DiaForConditionalGeneration, DiaProcessor, DiaTokenizer

    with load_context.use_revision(CODEC_COMMIT):
        codec_checkpoint = Checkpoint.fetch(CODEC, str(checkpoint.device))
    tokenizer, model = checkpoint.processor(DiaTokenizer), checkpoint.model(DiaForConditionalGeneration)
    codec = codec_checkpoint.model(DacModel, dtype=torch.float32)  # waveforms of 16-bit numbers have noise
    return DiaSynthesizer(checkpoint, model, DiaProcessor(DiaFeatureExtractor(), tokenizer, audio_tokenizer=codec))


class SpeechSynthesizer(TorchHandler):
    """Base class of both kinds of models. Runs one piece of one call at a time, since each draws random numbers."""

    batching = UNBATCHED
    rate: int

    def __init__(self, checkpoint: Checkpoint, model: Any, tokenizer: Any) -> None:
        super().__init__(checkpoint, model)
        self._tokenizer = tokenizer

    def prepare(self, inputs: Inputs, parameters: Parameters) -> SpeechItem:
        text = inputs["text"].strip()
        if len(text) > MAX_CHARACTERS:
            raise InvalidRequest(
                f"the text has {len(text):,} characters; the limit is {MAX_CHARACTERS:,}",
                port="text",
                remedy="send it in parts, or summarize it first",
            )
        rows = [row for piece in self.split(text) if (row := self.tokenize(piece))]
        if not rows:
            raise InvalidRequest(
                f"the text has no characters that {self.model_id} can speak",
                port="text",
                remedy="send text in the language and script of the model",
            )
        self.check_language(parameters.get("language", ""))
        return SpeechItem(rows, self.find_voice(parameters.get("voice", "")), float(parameters["speed"]))

    def cost(self, item: SpeechItem) -> float:
        return sum(map(len, item.rows))

    def run(self, items: Sequence[SpeechItem], call: Call) -> list[Any]:
        import torch

        results = []
        for item in items:
            sounds: list[Any] = []
            for number, row in enumerate(item.rows):
                if call.cancelled:
                    return []
                ids = torch.tensor([row], device=self.model.device)
                with inference_context(self.model_id), use_seed(_SEED, self.model.device):
                    sounds.append(self.synthesize(ids, item).float().cpu().reshape(-1))
                call.progress((number + 1) / len(item.rows))
            pause = torch.zeros(int(_PAUSE_SECONDS * self.rate))
            results.append(torch.cat([part for sound in sounds for part in (pause, sound)][1:]).numpy())
        return results

    def finish(self, raw: Any) -> Outputs:
        return {"audio": encode_recording(raw, self.rate, "speech.wav")}

    def split(self, text: str) -> list[str]:
        """Splits a text into pieces, of which each is one forward pass."""
        return split_text(text)

    def tokenize(self, text: str) -> list[int]:
        """Returns the tokens of a piece; an empty list if the model knows none of its characters."""
        raise NotImplementedError

    def find_voice(self, name: str) -> Any:
        """Returns the voice of a name, or the default voice for an empty name.

        Raises:
            InvalidRequest: the model has no such voice.
        """
        raise NotImplementedError

    def synthesize(self, ids: Any, item: SpeechItem) -> Any:
        """Generates the samples of one piece."""
        raise NotImplementedError

    def check_language(self, language: str) -> None:
        """Checks that the model speaks a language; by default any is accepted, since not all models state theirs.

        Raises:
            InvalidRequest: it does not.
        """


class VitsSynthesizer(SpeechSynthesizer):
    def __init__(self, checkpoint: Checkpoint, model: Any, tokenizer: Any) -> None:
        super().__init__(checkpoint, model, tokenizer)
        self.rate, self._voices = int(model.config.sampling_rate), int(model.config.num_speakers)

    def tokenize(self, text: str) -> list[int]:
        row: list[int] = self._tokenizer(text).input_ids
        blank = self._tokenizer.pad_token_id or 0
        return row if any(token != blank for token in row) else []

    def find_voice(self, name: str) -> int | None:
        if not name:
            return 0 if self._voices > 1 else None
        if self._voices > 1 and name.isdecimal() and int(name) < self._voices:
            return int(name)
        available = f"voices 0 to {self._voices - 1}" if self._voices > 1 else "one voice"
        raise InvalidRequest(
            f"{self.model_id} has no voice {name[:40]!r}; it has {available}", remedy="omit the parameter voice"
        )

    def synthesize(self, ids: Any, item: SpeechItem) -> Any:
        rate = item.speed * self.model.config.speaking_rate
        return self.model(input_ids=ids, speaker_id=item.voice, speaking_rate=rate).waveform[0]

    def check_language(self, language: str) -> None:
        spoken, requested = to_iso_639_3(self._tokenizer.language or ""), to_iso_639_3(language)
        if requested and spoken and requested != spoken:
            raise InvalidRequest(
                f"{self.model_id} does not speak {language[:40]!r}, only {spoken}",
                port=parameter_port("language"),
                remedy="omit the parameter language, or choose a model that speaks it",
            )


class SpeechT5Synthesizer(SpeechSynthesizer):
    def __init__(self, checkpoint: Checkpoint, model: Any, tokenizer: Any, vocoder: Any) -> None:
        super().__init__(checkpoint, model, tokenizer)
        self._vocoder, self._voices = vocoder, Voices(checkpoint)
        self.rate = int(vocoder.config.sampling_rate)

    def tokenize(self, text: str) -> list[int]:
        row: list[int] = self._tokenizer(text).input_ids[: self.model.config.max_text_positions]
        special = {self._tokenizer.eos_token_id, self._tokenizer.unk_token_id}
        known = self._tokenizer.convert_ids_to_tokens([token for token in row if token not in special])
        return row if any(piece.strip(_SPACE) for piece in known) else []

    def find_voice(self, name: str) -> Any:
        return self._voices.find(name)

    def synthesize(self, ids: Any, item: SpeechItem) -> Any:
        if item.speed != 1:
            raise InvalidRequest(f"{self.model_id} has a fixed speed", remedy="omit the parameter speed")
        return self.model.generate_speech(ids, self._voices.embedding(item.voice, self.model), vocoder=self._vocoder)

    def close(self) -> None:
        self._vocoder = None
        super().close()


class DiaSynthesizer(SpeechSynthesizer):
    """Speaks English, or a dialogue of two speakers whose turns start with [S1] and [S2]."""

    def __init__(self, checkpoint: Checkpoint, model: Any, processor: Any) -> None:
        super().__init__(checkpoint, model, processor.tokenizer)
        self._processor, self.rate = processor, int(processor.audio_tokenizer.config.sampling_rate)
        start = processor(text=[_SPEAKERS[0]], padding=False, return_tensors="pt")
        self._start = {name: start[name] for name in ("decoder_input_ids", "decoder_attention_mask")}
        config = model.config
        self._max_tokens = config.encoder_config.max_position_embeddings
        self._max_frames = config.decoder_config.max_position_embeddings - max(config.delay_pattern) - 1

    def split(self, text: str) -> list[str]:
        """Joins sentences to longer pieces, since the voice differs between pieces; each starts with its speaker."""
        speaker, pieces = _SPEAKERS[0], list[str]()
        for sentence in split_text(text):
            tagged = sentence if sentence.startswith(_SPEAKERS) else f"{speaker} {sentence}"
            if pieces and len(pieces[-1]) + len(sentence) < _MAX_PIECE_CHARACTERS:
                pieces[-1] += f" {sentence}"
            else:
                pieces.append(tagged)
            speaker = max(_SPEAKERS, key=pieces[-1].rfind)
        return pieces

    def tokenize(self, text: str) -> list[int]:
        spoken = text
        for tag in _SPEAKERS:
            spoken = spoken.replace(tag, "")
        row: list[int] = self._tokenizer(text).input_ids[: self._max_tokens]
        return row if any(character.isascii() and character.isalnum() for character in spoken) else []

    def find_voice(self, name: str) -> None:
        if name:
            raise InvalidRequest(
                f"{self.model_id} has no voice {name[:40]!r}: it chooses one for each text",
                remedy="omit the parameter voice",
            )

    def synthesize(self, ids: Any, item: SpeechItem) -> Any:
        import torch

        if item.speed != 1:
            raise InvalidRequest(f"{self.model_id} has a fixed speed", remedy="omit the parameter speed")
        start = {name: tensor.to(ids.device) for name, tensor in self._start.items()}
        tokens = self.model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), **start, max_new_tokens=self._max_frames
        )
        return self._processor.batch_decode(tokens)[0]

    def check_language(self, language: str) -> None:
        if language and to_iso_639_3(language) != "eng":
            raise InvalidRequest(
                f"{self.model_id} does not speak {language[:40]!r}, only English",
                port=parameter_port("language"),
                remedy="omit the parameter language, or choose a model that speaks it",
            )

    def close(self) -> None:
        self._processor = None
        super().close()


def split_text(text: str) -> list[str]:
    """Splits a text into sentences, and longer sentences between words."""
    return [
        piece.strip()
        for sentence in _SENTENCE.split(text)
        for piece in re.findall(
            rf".{{1,{_MAX_PIECE_CHARACTERS}}}(?:\s|$)|.{{1,{_MAX_PIECE_CHARACTERS}}}", sentence, re.DOTALL
        )
        if piece.strip()
    ]


def _check_packages(tokenizer: Any, model_id: str) -> None:
    from importlib.util import find_spec

    package = "phonemizer" if tokenizer.phonemize else "uroman" if tokenizer.is_uroman else ""
    if package and find_spec(package) is None:
        raise FailedPrecondition(
            f"{model_id} needs the package {package}, which is not installed",
            reason="LOAD_FAILED",
            remedy=f"install {package}, or use another model",
        )

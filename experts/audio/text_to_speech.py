"""Reading aloud: VITS and MMS, which speak at once, and SpeechT5, which draws a spectrogram first."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from experts.audio.languages import three_letters
from experts.audio.random_seed import seeded
from experts.audio.voice_conversion import Voices, vocoder_of
from experts.audio.waveforms import recording
from experts.host.handler import UNBATCHED, Batching, Call, Handler, Inputs, Outputs, Parameters
from experts.host.parameters import port_of
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.devices import inference_context
from experts.torch_host.torch_handler import TorchHandler
from services.common.errors import FailedPrecondition, InvalidRequest

MOST_CHARACTERS = 10_000

_PIECE = 300
"""Characters that are spoken at once: models are trained with sentences."""
_PAUSE = 0.2
"""Seconds between two sentences."""
_SENTENCE = re.compile(r"(?<=[.!?…。！？])\s+|\n+")
_SEED = 0
_SPACE = "▁"
"""How SentencePiece writes it."""


@dataclass(frozen=True)
class Text:
    """One caller's."""

    rows: list[list[int]]
    """Tokens by sentence."""
    voice: Any
    speed: float


def text_to_speech(model_id: str, device: str) -> Handler:
    """VITS (and MMS) or SpeechT5.

    Raises:
        FailedPrecondition: LOAD_FAILED, it is neither, or its letters need a package that is not here.
    """
    from transformers import AutoConfig, AutoTokenizer, SpeechT5ForTextToSpeech, SpeechT5HifiGan, VitsModel

    checkpoint = Checkpoint.fetch(model_id, device)
    config = checkpoint.processor(AutoConfig)
    if config.model_type == "vits":
        tokenizer = checkpoint.processor(AutoTokenizer)
        _check_letters(tokenizer, model_id)
        return Vits(checkpoint, checkpoint.model(VitsModel), tokenizer)
    if config.model_type == "speecht5":
        tokenizer, vocoder = checkpoint.processor(AutoTokenizer), vocoder_of(checkpoint)
        model = checkpoint.model(SpeechT5ForTextToSpeech)
        return SpeechT5(checkpoint, model, tokenizer, vocoder.model(SpeechT5HifiGan))
    raise FailedPrecondition(
        f"{model_id} is a {config.model_type}, which does not speak here",
        reason="LOAD_FAILED",
        remedy="take a VITS, an MMS or a SpeechT5 model",
    )


class Speaker(TorchHandler):
    """What both have in common: sentence by sentence, one caller after the other, since each draws random numbers."""

    batching: ClassVar[Batching] = UNBATCHED
    rate: int

    def __init__(self, checkpoint: Checkpoint, model: Any, tokenizer: Any) -> None:
        super().__init__(checkpoint, model)
        self._tokenizer = tokenizer

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Text:
        text = inputs["text"].strip()
        if len(text) > MOST_CHARACTERS:
            raise InvalidRequest(
                f"the text has {len(text):,} characters; at most {MOST_CHARACTERS:,} are spoken at once",
                port="text",
                remedy="send it in parts, or summarize it first",
            )
        rows = [row for piece in pieces(text) if (row := self.tokens(piece))]
        if not rows:
            raise InvalidRequest(
                f"the text has nothing that {self.model_id} can speak",
                port="text",
                remedy="send words in the language and the script of the model",
            )
        self.check_language(parameters.get("language", ""))
        return Text(rows, self.voice(parameters.get("voice", "")), float(parameters["speed"]))

    def cost(self, item: Text) -> float:
        return sum(map(len, item.rows))

    def run(self, items: Sequence[Text], call: Call) -> list[Any]:
        import torch

        made = []
        for item in items:
            sounds: list[Any] = []
            for number, row in enumerate(item.rows):
                if call.cancelled:
                    return []
                ids = torch.tensor([row], device=self.model.device)
                with inference_context(self.model_id), seeded(_SEED, self.model.device):
                    sounds.append(self.spoken(ids, item).float().cpu().reshape(-1))
                call.progress((number + 1) / len(item.rows))
            pause = torch.zeros(int(_PAUSE * self.rate))
            made.append(torch.cat([part for sound in sounds for part in (pause, sound)][1:]).numpy())
        return made

    def finish(self, raw: Any) -> Outputs:
        return {"audio": recording(raw, self.rate, "speech.wav")}

    def tokens(self, text: str) -> list[int]:
        """None if there is nothing in it that the model knows."""
        raise NotImplementedError

    def voice(self, said: str) -> Any:
        """The voice of that name."""
        raise NotImplementedError

    def spoken(self, ids: Any, item: Text) -> Any:
        """The sound of a sentence."""
        raise NotImplementedError

    def check_language(self, said: str) -> None:
        """Models that do not know what they speak take every language."""


class Vits(Speaker):
    def __init__(self, checkpoint: Checkpoint, model: Any, tokenizer: Any) -> None:
        super().__init__(checkpoint, model, tokenizer)
        self.rate, self._voices = int(model.config.sampling_rate), int(model.config.num_speakers)

    def tokens(self, text: str) -> list[int]:
        row: list[int] = self._tokenizer(text).input_ids
        blank = self._tokenizer.pad_token_id or 0
        return row if any(token != blank for token in row) else []

    def voice(self, said: str) -> int | None:
        if not said:
            return 0 if self._voices > 1 else None
        if self._voices > 1 and said.isdecimal() and int(said) < self._voices:
            return int(said)
        has = f"voices 0 to {self._voices - 1}" if self._voices > 1 else "one voice"
        raise InvalidRequest(f"{self.model_id} has no voice {said[:40]!r}: it has {has}", remedy="leave the voice out")

    def spoken(self, ids: Any, item: Text) -> Any:
        rate = item.speed * self.model.config.speaking_rate
        return self.model(input_ids=ids, speaker_id=item.voice, speaking_rate=rate).waveform[0]

    def check_language(self, said: str) -> None:
        known, asked = three_letters(self._tokenizer.language or ""), three_letters(said)
        if asked and known and asked != known:
            raise InvalidRequest(
                f"{self.model_id} does not speak {said[:40]!r}, only {known}",
                port=port_of("language"),
                remedy="leave the language out, or choose a model that speaks it",
            )


class SpeechT5(Speaker):
    def __init__(self, checkpoint: Checkpoint, model: Any, tokenizer: Any, vocoder: Any) -> None:
        super().__init__(checkpoint, model, tokenizer)
        self._vocoder, self._voices = vocoder, Voices(checkpoint, model.config.speaker_embedding_dim)
        self.rate = int(vocoder.config.sampling_rate)

    def tokens(self, text: str) -> list[int]:
        row: list[int] = self._tokenizer(text).input_ids[: self.model.config.max_text_positions]
        special = {self._tokenizer.eos_token_id, self._tokenizer.unk_token_id}
        known = self._tokenizer.convert_ids_to_tokens([token for token in row if token not in special])
        return row if any(piece.strip(_SPACE) for piece in known) else []

    def voice(self, said: str) -> Any:
        return self._voices.named(said)

    def spoken(self, ids: Any, item: Text) -> Any:
        if item.speed != 1:
            raise InvalidRequest(f"{self.model_id} knows one speed", remedy="leave the speed out")
        return self.model.generate_speech(ids, self._voices.placed(item.voice, self.model), vocoder=self._vocoder)

    def close(self) -> None:
        self._vocoder = None
        super().close()


def pieces(text: str) -> list[str]:
    """Sentences; one that is too long is cut between words."""
    return [
        piece.strip()
        for sentence in _SENTENCE.split(text)
        for piece in re.findall(rf".{{1,{_PIECE}}}(?:\s|$)|.{{1,{_PIECE}}}", sentence, re.DOTALL)
        if piece.strip()
    ]


def _check_letters(tokenizer: Any, model_id: str) -> None:
    from importlib.util import find_spec

    needs = "phonemizer" if tokenizer.phonemize else "uroman" if tokenizer.is_uroman else ""
    if needs and find_spec(needs) is None:
        raise FailedPrecondition(
            f"{model_id} reads text through the package {needs}, which is not installed",
            reason="LOAD_FAILED",
            remedy=f"install {needs}, or take another model",
        )

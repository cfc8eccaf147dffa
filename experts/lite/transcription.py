"""Speech recognition of American English (pocketsphinx with the model inside its wheel): a rough transcript."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from experts.host.audio import read_audio
from experts.host.handler import ALONE, Call, Handler, Inputs, Outputs, Parameters
from experts.host.parameters import port_of
from services.runtime.errors import InvalidRequest

NO_SPEECH = "No speech found."
LONGEST_SECONDS = 600.0

_RATE = 16_000
_UTTERANCE_SECONDS = 20.0
_FULL_SCALE = 32767
_MARKS = ("<", "[", "+")
_NOTE = (
    "A rough transcript: expect every fourth word or so to be wrong, more with noise or accents. "
    "A Whisper-class model does much better."
)


@dataclass(frozen=True)
class Utterance:
    """Something said without a pause."""

    text: str
    start: float
    end: float
    confidence: float


class Transcription:
    """The loaded recogniser; one recording at a time."""

    batching = ALONE

    def __init__(self) -> None:
        import pocketsphinx

        self._decoder = pocketsphinx.Decoder(samprate=_RATE, loglevel="FATAL")
        self._endpointer = pocketsphinx.Endpointer

    def prepare(self, inputs: Inputs, parameters: Parameters) -> bytes:
        language = str(parameters.get("language", "en")).lower()
        if not language.startswith("en"):
            raise InvalidRequest(
                f"This model only knows English, not “{language}”.",
                port=port_of("language"),
                remedy="Leave the language out, or choose a model that knows it.",
            )
        samples, _ = read_audio(inputs["audio"], rate=_RATE, longest=LONGEST_SECONDS)
        return (samples.clip(-1, 1) * _FULL_SCALE).astype("<i2").tobytes()

    def cost(self, item: bytes) -> float:
        return len(item) / (2 * _RATE)

    def run(self, items: Sequence[bytes], call: Call) -> list[list[Utterance]]:
        return [list(self._utterances(item, call)) for item in items]

    def finish(self, raw: list[Utterance]) -> Outputs:
        said = sum(len(one.text.split()) for one in raw)
        confidence = sum(one.confidence * len(one.text.split()) for one in raw) / max(1, said)
        return {
            "text": ". ".join(one.text.capitalize() for one in raw) + "." if raw else NO_SPEECH,
            "segments": [
                {
                    "text": one.text,
                    "start": round(one.start, 3),
                    "end": round(one.end, 3),
                    "confidence": round(one.confidence, 4),
                }
                for one in raw
            ],
            "details": {"confidence": round(confidence, 4), "language": "en", "quality": "rough", "note": _NOTE},
        }

    def _utterances(self, pcm: bytes, call: Call) -> Iterator[Utterance]:
        for start, end, speech in self._speech(pcm):
            if call.cancelled:
                return
            text, confidence = self._decode(speech)
            call.progress(min(1.0, end * 2 * _RATE / len(pcm)))
            if text:
                yield Utterance(text, start, end, confidence)

    def _speech(self, pcm: bytes) -> Iterator[tuple[float, float, bytes]]:
        """Cuts at pauses, and anyway before a stretch gets too long."""
        endpointer = self._endpointer(sample_rate=_RATE)
        size, heard, start = endpointer.frame_bytes, bytearray(), 0.0
        for place in range(0, len(pcm), size):
            frame = pcm[place : place + size]
            before = endpointer.in_speech
            speech = endpointer.process(frame) if len(frame) == size else endpointer.end_stream(frame)
            if speech is not None:
                start = start if before and heard else endpointer.speech_start
                heard += speech
            over = len(heard) > _UTTERANCE_SECONDS * 2 * _RATE
            if heard and (over or not endpointer.in_speech):
                end = start + len(heard) / (2 * _RATE)
                yield start, end, bytes(heard)
                heard, start = bytearray(), end
        if heard:
            yield start, start + len(heard) / (2 * _RATE), bytes(heard)

    def _decode(self, speech: bytes) -> tuple[str, float]:
        """The words, and the mean probability of one of them, from that of them all together."""
        decoder = self._decoder
        decoder.start_utt()
        decoder.process_raw(speech, full_utt=True)
        decoder.end_utt()
        best: Any = decoder.hyp()
        words = best.hypstr.split() if best else []
        spoken = [word for word in words if not word.startswith(_MARKS)]
        if not spoken:
            return "", 0.0
        return " ".join(spoken), float(min(1.0, best.prob) ** (1 / len(words)))


def automatic_speech_recognition(_model_id: str, _device: str) -> Handler:
    """Loads the acoustic model, the dictionary and the language model."""
    return Transcription()

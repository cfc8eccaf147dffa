"""Speech recognition of American English (pocketsphinx with the model inside its wheel): a rough transcript."""

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from experts.host.handler import UNBATCHED, Call, Handler, Inputs, Outputs, Parameters
from experts.host.input_validation import parameter_port
from experts.host.isolation import engine_pool, run_in_pool
from experts.host.media import read_audio
from services.common.errors import InvalidRequest

NO_SPEECH = "No speech found."
LONGEST_SECONDS = 600.0

_PORT = "audio"
_SLOW_SECONDS = 8.0
"""Recognition takes half the duration of the speech."""
_RATE = 16_000
_UTTERANCE_SECONDS = 20.0
_FULL_SCALE = 32767
_NON_SPEECH_PREFIXES = ("<", "[", "+")
_NOTE = (
    "A rough transcript: expect every fourth word or so to be wrong, more with noise or accents. "
    "A Whisper-class model does much better."
)


@dataclass(frozen=True)
class Utterance:
    """Speech without a pause."""

    text: str
    start: float
    end: float
    confidence: float


@dataclass(frozen=True)
class Recording:
    """The audio of one call."""

    file: str
    """Name of the file."""
    pcm: bytes
    """16-bit samples in one channel."""

    @property
    def seconds(self) -> float:
        return len(self.pcm) / (2 * _RATE)


class Transcription(Handler):
    """The recognizer in its own worker processes; loaded in the first of them."""

    batching = UNBATCHED
    concurrent = True

    def __init__(self) -> None:
        self._pool = engine_pool(_load_decoder, slow_seconds=_SLOW_SECONDS)
        weakref.finalize(self, self._pool.close)
        self._pool.wait_ready()
        self.memory_bytes = self._pool.resident_bytes

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Recording:
        language = str(parameters.get("language", "en")).lower()
        if not language.startswith("en"):
            raise InvalidRequest(
                f"this model supports only English, not {language}",
                port=parameter_port("language"),
                remedy="omit the parameter language, or choose a model that supports the language",
            )
        samples, _ = read_audio(inputs["audio"], rate=_RATE, longest=LONGEST_SECONDS)
        return Recording(inputs["audio"].name, (samples.clip(-1, 1) * _FULL_SCALE).astype("<i2").tobytes())

    def cost(self, item: Recording) -> float:
        return item.seconds

    def run(self, items: Sequence[Recording], call: Call) -> list[list[Utterance]]:
        return [list(self._utterances(item, call)) for item in items]

    def finish(self, raw: list[Utterance]) -> Outputs:
        word_count = sum(len(utterance.text.split()) for utterance in raw)
        confidence = sum(utterance.confidence * len(utterance.text.split()) for utterance in raw) / max(1, word_count)
        return {
            "text": ". ".join(utterance.text.capitalize() for utterance in raw) + "." if raw else NO_SPEECH,
            "segments": [
                {
                    "text": utterance.text,
                    "start": round(utterance.start, 3),
                    "end": round(utterance.end, 3),
                    "confidence": round(utterance.confidence, 4),
                }
                for utterance in raw
            ],
            "details": {"confidence": round(confidence, 4), "language": "en", "quality": "rough", "note": _NOTE},
        }

    def _utterances(self, recording: Recording, call: Call) -> Iterator[Utterance]:
        """Runs one isolated call per utterance, so that other calls can run in between."""
        for start, end, speech in run_in_pool(self._pool, find_speech, recording.pcm, file=recording.file, port=_PORT):
            if call.cancelled:
                return
            text, confidence = run_in_pool(self._pool, recognise, speech, file=recording.file, port=_PORT)
            call.progress(min(1.0, end / recording.seconds))
            if text:
                yield Utterance(text, start, end, confidence)


# ------------------------------------------------------- in a worker process


@cache
def _decoder() -> Any:
    import pocketsphinx

    return pocketsphinx.Decoder(samprate=_RATE, loglevel="FATAL")


def _load_decoder() -> None:
    _decoder()


def find_speech(pcm: bytes) -> list[tuple[float, float, bytes]]:
    """Returns start and end in seconds and the samples of each utterance, split at pauses and at a maximum length."""
    import pocketsphinx

    endpointer, utterances = pocketsphinx.Endpointer(sample_rate=_RATE), []
    size, buffer, start = endpointer.frame_bytes, bytearray(), 0.0
    for offset in range(0, len(pcm), size):
        frame = pcm[offset : offset + size]
        was_in_speech = endpointer.in_speech
        speech = endpointer.process(frame) if len(frame) == size else endpointer.end_stream(frame)
        if speech is not None:
            start = start if was_in_speech and buffer else endpointer.speech_start
            buffer += speech
        is_too_long = len(buffer) > _UTTERANCE_SECONDS * 2 * _RATE
        if buffer and (is_too_long or not endpointer.in_speech):
            end = start + len(buffer) / (2 * _RATE)
            utterances.append((start, end, bytes(buffer)))
            buffer, start = bytearray(), end
    if buffer:
        utterances.append((start, start + len(buffer) / (2 * _RATE), bytes(buffer)))
    return utterances


def recognise(speech: bytes) -> tuple[str, float]:
    """Returns the words and their mean probability, from that of the whole utterance."""
    decoder = _decoder()
    decoder.start_utt()
    decoder.process_raw(speech, full_utt=True)
    decoder.end_utt()
    best: Any = decoder.hyp()
    words = best.hypstr.split() if best else []
    spoken = [word for word in words if not word.startswith(_NON_SPEECH_PREFIXES)]
    if not spoken:
        return "", 0.0
    return " ".join(spoken), float(min(1.0, best.prob) ** (1 / len(words)))


# ------------------------------------------------------- in the expert


def automatic_speech_recognition(_model_id: str, _device: str) -> Handler:
    """Loads the acoustic model, the dictionary and the language model."""
    return Transcription()

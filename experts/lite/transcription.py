"""Speech recognition of American English (pocketsphinx with the model inside its wheel): a rough transcript."""

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from experts.host.audio import read_audio
from experts.host.handler import UNBATCHED, Call, Handler, Inputs, Outputs, Parameters
from experts.host.isolation import engine_pool, run_in
from experts.host.parameters import port_of
from services.common.errors import InvalidRequest

NO_SPEECH = "No speech found."
LONGEST_SECONDS = 600.0

_PORT = "audio"
_SLOW_SECONDS = 8.0
"""Recognition takes half the duration of the speech."""
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


class Transcription:
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
                f"This model only knows English, not “{language}”.",
                port=port_of("language"),
                remedy="Leave the language out, or choose a model that knows it.",
            )
        samples, _ = read_audio(inputs["audio"], rate=_RATE, longest=LONGEST_SECONDS)
        return Recording(inputs["audio"].name, (samples.clip(-1, 1) * _FULL_SCALE).astype("<i2").tobytes())

    def cost(self, item: Recording) -> float:
        return item.seconds

    def run(self, items: Sequence[Recording], call: Call) -> list[list[Utterance]]:
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

    def _utterances(self, recording: Recording, call: Call) -> Iterator[Utterance]:
        """Runs one isolated call per utterance, so that other calls can run in between."""
        for start, end, speech in run_in(self._pool, find_speech, recording.pcm, file=recording.file, port=_PORT):
            if call.cancelled:
                return
            text, confidence = run_in(self._pool, recognise, speech, file=recording.file, port=_PORT)
            call.progress(min(1.0, end / recording.seconds))
            if text:
                yield Utterance(text, start, end, confidence)


# ------------------------------------------------------- what runs in a worker process


@cache
def _decoder() -> Any:
    import pocketsphinx

    return pocketsphinx.Decoder(samprate=_RATE, loglevel="FATAL")


def _load_decoder() -> None:
    _decoder()


def find_speech(pcm: bytes) -> list[tuple[float, float, bytes]]:
    """Yields start, end and samples of each utterance, split at pauses and at a maximum length."""
    import pocketsphinx

    endpointer, found = pocketsphinx.Endpointer(sample_rate=_RATE), []
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
            found.append((start, end, bytes(heard)))
            heard, start = bytearray(), end
    if heard:
        found.append((start, start + len(heard) / (2 * _RATE), bytes(heard)))
    return found


def recognise(speech: bytes) -> tuple[str, float]:
    """Returns the words and their mean probability, from that of the whole utterance."""
    decoder = _decoder()
    decoder.start_utt()
    decoder.process_raw(speech, full_utt=True)
    decoder.end_utt()
    best: Any = decoder.hyp()
    words = best.hypstr.split() if best else []
    spoken = [word for word in words if not word.startswith(_MARKS)]
    if not spoken:
        return "", 0.0
    return " ".join(spoken), float(min(1.0, best.prob) ** (1 / len(words)))


# ------------------------------------------------------- what runs in the expert


def automatic_speech_recognition(_model_id: str, _device: str) -> Handler:
    """Loads the acoustic model, the dictionary and the language model."""
    return Transcription()

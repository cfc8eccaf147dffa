"""Sounds for training and tests."""

import io
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray

from experts.host.handler import Media
from experts.host.media import wav

Samples = NDArray[np.float32]

RATE = 16_000
LOW, HIGH = 220.0, 1760.0


def make_tone(pitch: float, seconds: float = 1.0, rate: int = RATE) -> Samples:
    """Returns a sine at half of full scale; silence for pitch 0."""
    return (0.5 * np.sin(2 * np.pi * pitch * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def make_tones(*parts: tuple[float, float]) -> Samples:
    """Returns consecutive tones, each given as pitch and seconds."""
    return np.concatenate([make_tone(pitch, seconds) for pitch, seconds in parts])


def to_wav(samples: Samples, rate: int = RATE, name: str = "sound.wav") -> Media:
    return wav(samples, rate, name)


def encode_audio(samples: Samples, rate: int, kind: str, media_type: str) -> Media:
    """Encodes samples with libsndfile as FLAC, MP3 or OGG; two-dimensional samples have several channels."""
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate, format=kind)
    return Media(buffer.getvalue(), media_type, f"sound.{kind.lower()}")


def encode_m4a(samples: Samples, rate: int) -> Media:
    """Encodes samples as AAC in MP4, as telephones record."""
    import av

    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream: Any = container.add_stream("aac", rate=rate, layout="mono")
        frame = av.AudioFrame.from_ndarray(samples.reshape(1, -1), format="fltp", layout="mono")
        frame.sample_rate = rate
        container.mux([*stream.encode(frame), *stream.encode(None)])
    return Media(buffer.getvalue(), "audio/mp4", "sound.m4a")


def read_wav(media: Media) -> tuple[Samples, int]:
    """Returns a WAV file's samples and sample rate."""
    samples, rate = soundfile.read(io.BytesIO(media.content), dtype="float32")
    return samples, rate

"""Decodes audio files to one channel of floats at the rate a model needs, and encodes WAV."""

import io
import math
import wave
from typing import TYPE_CHECKING, Any

from experts.host.handler import Media
from experts.host.isolation import run_isolated
from services.common.errors import InvalidRequest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Samples = NDArray[np.float32]

MAX_SECONDS = 1800.0

_BLOCK = 1 << 18
_RATES = (1000, 768_000)
_ZERO_CROSSINGS = 16
_FULL_SCALE = 32767
_UNKNOWN = 2**62
"""Number of frames from which on libsndfile means that the length is unknown."""
_ESTIMATED = ("MP3", "MPEG")
"""Formats whose headers may state a wrong number of frames."""
_REMEDY = "send a WAV, FLAC, Ogg or MP3 file"


def read_audio(
    media: Media, *, rate: int | None = None, port: str = "audio", longest: float = MAX_SECONDS
) -> "tuple[Samples, int]":
    """Decodes audio to one channel, -1 to 1, at the given rate or its own; returns non-empty samples and their rate.

    Float files with larger values are scaled down as a whole.

    Raises:
        InvalidRequest: it cannot be decoded, is empty or too long, or DECODE_LIMIT.
    """
    return run_isolated(_decode, media, rate, port, longest, file=media.name, port=port)


def _decode(media: Media, rate: int | None, port: str, longest: float) -> "tuple[Samples, int]":
    """As read_audio; in a worker process."""
    import soundfile

    try:
        with soundfile.SoundFile(io.BytesIO(media.content)) as file:
            samples, own = _mono(file, media, port, longest), int(file.samplerate)
    except (soundfile.SoundFileError, TypeError, ValueError) as error:
        raise InvalidRequest(
            f"cannot decode {media.name}: it is not a supported audio file", remedy=_REMEDY, port=port
        ) from error
    if not len(samples):
        raise InvalidRequest(f"{media.name} contains no audio samples", remedy="record it again", port=port)
    samples /= max(1.0, float(abs(samples).max()))
    return (samples, own) if rate in {None, own} else (resample(samples, own, rate or own), rate or own)


def too_long_error(media: Media, longest: float, port: str = "audio") -> InvalidRequest:
    """Returns the error for audio that is longer than so many seconds."""
    return InvalidRequest(
        f"{media.name} is longer than {longest / 60:g} minutes",
        remedy="split it into parts and send them separately",
        port=port,
    )


def wav(samples: "Samples", rate: int, name: str) -> Media:
    """Encodes samples as 16-bit PCM; values beyond full scale are clipped."""
    pcm = (samples.clip(-1, 1) * _FULL_SCALE).round().astype("<i2").tobytes()
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(pcm)
    return Media(buffer.getvalue(), "audio/wav", name)


def resample(samples: "Samples", rate: int, target: int) -> "Samples":
    """Resamples by band-limited interpolation with a windowed sinc: one short filter per phase between two samples."""
    import numpy as np

    divisor = math.gcd(rate, target)
    up, down = target // divisor, rate // divisor
    width = max(1.0, rate / target)
    radius = math.ceil(_ZERO_CROSSINGS * width)
    padded = np.pad(samples, (radius, radius + down))
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * radius + 1)
    taps = np.arange(-radius, radius + 1)
    result = np.zeros(math.ceil(len(samples) * up / down), dtype=np.float32)
    for phase in range(min(up, len(result))):
        start, offset = divmod(phase * down, up)
        at = (taps - offset / up) / width
        kernel = np.sinc(at) * np.where(abs(at) < _ZERO_CROSSINGS, 1 + np.cos(np.pi * at / _ZERO_CROSSINGS), 0)
        count = len(result[phase::up])
        result[phase::up] = windows[start::down][:count] @ (kernel / (2 * width)).astype(np.float32)
    return result


def _mono(file: Any, media: Media, port: str, longest: float) -> "Samples":
    """Reads the file in blocks and averages its channels: a long file with many channels may not fit into memory."""
    import numpy as np

    if not _RATES[0] <= file.samplerate <= _RATES[1]:
        raise InvalidRequest(
            f"cannot decode {media.name}: a sample rate of {file.samplerate} Hz is not supported",
            remedy=_REMEDY,
            port=port,
        )
    limit = int(longest * file.samplerate)
    if limit < file.frames < _UNKNOWN and file.format not in _ESTIMATED:
        raise too_long_error(media, longest, port)
    blocks, total = [], 0
    while len(block := file.read(_BLOCK, dtype="float32", always_2d=True)):
        blocks.append(np.nan_to_num(block.mean(axis=1), posinf=1.0, neginf=-1.0))
        total += len(block)
        if total > limit:
            raise too_long_error(media, longest, port)
    return np.concatenate(blocks) if blocks else np.zeros(0, dtype=np.float32)

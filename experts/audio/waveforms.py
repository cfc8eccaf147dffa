"""Recordings as the models here take them, and what they make of them."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from experts.host.audio import read_audio, too_long, wav
from experts.host.handler import Media
from experts.host.isolation import isolated
from services.common.errors import InvalidRequest, ModelFailed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Samples = NDArray[np.float32]

HOUR = 3600.0

_SHORTEST = 0.1
"""Seconds: less than a model's first layers see at once is filled up with silence."""
_SILENCE = 1e-4
"""-80 dB: below it lie only the rounding and dither of files."""
_ELSEWHERE = ("audio/mp4", "audio/x-m4a", "audio/m4a", "audio/aac", "audio/webm", "audio/x-ms-wma", "audio/amr")
"""What libsndfile does not decode."""
_TICKS = 1_000_000
"""A second, as FFmpeg counts the length of files."""


def heard(media: Media, rate: int, *, longest: float = HOUR) -> "Samples":
    """One channel of floats at a rate, at least a tenth of a second.

    Raises:
        InvalidRequest: it cannot be decoded, is empty or too long, or DECODE_LIMIT.
    """
    import numpy as np

    if media.media_type.partition(";")[0] in _ELSEWHERE:
        samples = isolated(_unpacked, media, rate, longest, file=media.name, port="audio")
    else:
        samples, _ = read_audio(media, rate=rate, longest=longest)
    return np.pad(samples, (0, max(0, int(_SHORTEST * rate) - len(samples))))


def is_silent(samples: "Samples") -> bool:
    """Whether there is nothing to be heard; models make up something then."""
    return not len(samples) or float(abs(samples).max()) < _SILENCE


def windows(samples: "Samples", size: int) -> list["Samples"]:
    """Cut into parts of equal length; the last is what is left, unless that is next to nothing."""
    import numpy as np

    count = max(1, round(len(samples) / size + 0.45))
    return [np.ascontiguousarray(samples[place * size : (place + 1) * size]) for place in range(count)]


def at_pauses(samples: "Samples", rate: int, longest: float) -> list["Samples"]:
    """Parts of at most so many seconds, each cut at the quietest place of its last third."""
    size, frame = int(longest * rate), max(1, rate // 50)
    parts = []
    while len(samples) > size:
        start = size - size // 3
        tail = abs(samples[start : start + (size - start) // frame * frame]).reshape(-1, frame)
        place = start + int(tail.mean(axis=1).argmin()) * frame + frame // 2
        parts.append(samples[:place])
        samples = samples[place:]
    return [*parts, samples]


def recording(samples: Any, rate: int, name: str) -> Media:
    """What a model made, as WAV; turned down as a whole if it is louder than full scale.

    Raises:
        ModelFailed: it is empty or not finite.
    """
    import numpy as np

    sound = np.asarray(samples, dtype=np.float32).reshape(-1)
    if not len(sound) or not np.isfinite(sound).all():
        raise ModelFailed("the model made no sound that can be played", remedy="try another input or another model")
    return wav(sound / max(1.0, float(abs(sound).max())), rate, name)


def _unpacked(media: Media, rate: int, longest: float) -> "Samples":
    """The sound of a file that FFmpeg knows, turned down as a whole if it is louder than full scale; in a worker."""
    import numpy as np

    with _decoding(media) as container:
        if not container.streams.audio:
            raise InvalidRequest(f"{media.name} has no audio track.", remedy="Send a file with audio.", port="audio")
        if (container.duration or 0) > longest * _TICKS:
            raise too_long(media, longest)
        blocks, total = [], 0
        for block in _blocks(container, rate):
            blocks.append(block)
            total += len(block)
            if total > longest * rate:
                raise too_long(media, longest)
    if not total:
        raise InvalidRequest(f"{media.name} contains no audio samples.", remedy="Record it again.", port="audio")
    samples = np.nan_to_num(np.concatenate(blocks), copy=False, posinf=1.0, neginf=-1.0)
    samples /= max(1.0, float(abs(samples).max()))
    return samples


def _blocks(container: Any, rate: int) -> "Iterator[Samples]":
    import av
    import numpy as np

    resampler = av.AudioResampler(format="flt", layout="mono", rate=rate)
    for frame in container.decode(audio=0):
        for block in resampler.resample(frame):
            yield np.asarray(block.to_ndarray(), dtype=np.float32).reshape(-1)
    for block in resampler.resample(None):
        yield np.asarray(block.to_ndarray(), dtype=np.float32).reshape(-1)


@contextmanager
def _decoding(media: Media) -> Iterator[Any]:
    import av

    try:
        with av.open(io.BytesIO(media.content), metadata_errors="ignore") as container:
            yield container
    except (av.FFmpegError, ValueError) as error:
        raise InvalidRequest(
            f"cannot decode {media.name}: it is not a supported audio file.",
            remedy="Send a WAV, FLAC, Ogg, MP3 or M4A file.",
            port="audio",
        ) from error

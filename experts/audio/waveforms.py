"""Decodes recordings to samples, splits them, and encodes results as WAV."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from experts.host.handler import Media
from experts.host.isolation import run_isolated
from experts.host.media.audio import read_audio, too_long_error, wav
from services.common.errors import InvalidRequest, ModelFailed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Samples = NDArray[np.float32]

DEFAULT_MAX_SECONDS = 3600.0

_MIN_SECONDS = 0.1
"""Shorter recordings are padded with silence: models' first layers need this length."""
_SILENCE_AMPLITUDE = 1e-4
"""-80 dB: lower amplitudes are rounding and dither of files."""
_FFMPEG_TYPES = ("audio/mp4", "audio/x-m4a", "audio/m4a", "audio/aac", "audio/webm", "audio/x-ms-wma", "audio/amr")
"""Formats that libsndfile does not decode."""
_TICKS_PER_SECOND = 1_000_000
"""FFmpeg's unit for durations of files."""


def decode_samples(media: Media, rate: int, *, max_seconds: float = DEFAULT_MAX_SECONDS) -> "Samples":
    """Decodes a recording to one channel of floats at the given rate, padded to a tenth of a second.

    Raises:
        InvalidRequest: it cannot be decoded, is empty or too long, or DECODE_LIMIT.
    """
    import numpy as np

    if media.media_type.partition(";")[0] in _FFMPEG_TYPES:
        samples = run_isolated(_decode_with_ffmpeg, media, rate, max_seconds, file=media.name, port="audio")
    else:
        samples, _ = read_audio(media, rate=rate, longest=max_seconds)
    return np.pad(samples, (0, max(0, int(_MIN_SECONDS * rate) - len(samples))))


def is_silent(samples: "Samples") -> bool:
    """Whether samples are silent; models would invent a result for them."""
    return not len(samples) or float(abs(samples).max()) < _SILENCE_AMPLITUDE


def split_windows(samples: "Samples", size: int) -> list["Samples"]:
    """Splits samples into windows of one size; the last is shorter, or omitted if it has under 5 % of the size."""
    import numpy as np

    count = max(1, round(len(samples) / size + 0.45))
    return [np.ascontiguousarray(samples[index * size : (index + 1) * size]) for index in range(count)]


def split_at_pauses(samples: "Samples", rate: int, max_seconds: float) -> list["Samples"]:
    """Splits samples into parts of at most max_seconds, each ending at the quietest point of its last third."""
    size, frame = int(max_seconds * rate), max(1, rate // 50)
    parts = []
    while len(samples) > size:
        start = size - size // 3
        tail = abs(samples[start : start + (size - start) // frame * frame]).reshape(-1, frame)
        end = start + int(tail.mean(axis=1).argmin()) * frame + frame // 2
        parts.append(samples[:end])
        samples = samples[end:]
    return [*parts, samples]


def encode_recording(samples: Any, rate: int, name: str) -> Media:
    """Encodes a model's output as WAV, scaled down as a whole if it exceeds full scale.

    Raises:
        ModelFailed: it is empty or not finite.
    """
    import numpy as np

    sound = np.asarray(samples, dtype=np.float32).reshape(-1)
    if not len(sound) or not np.isfinite(sound).all():
        raise ModelFailed("the model's audio is empty or not finite", remedy="try another input or another model")
    return wav(sound / max(1.0, float(abs(sound).max())), rate, name)


def _decode_with_ffmpeg(media: Media, rate: int, max_seconds: float) -> "Samples":
    """Decodes a file with FFmpeg, scaled down as a whole if it exceeds full scale; runs in a worker process."""
    import numpy as np

    with _open_container(media) as container:
        if not container.streams.audio:
            raise InvalidRequest(f"{media.name} has no audio track", remedy="send a file with audio", port="audio")
        if (container.duration or 0) > max_seconds * _TICKS_PER_SECOND:
            raise too_long_error(media, max_seconds)
        blocks, total = [], 0
        for block in _blocks(container, rate):
            blocks.append(block)
            total += len(block)
            if total > max_seconds * rate:
                raise too_long_error(media, max_seconds)
    if not total:
        raise InvalidRequest(f"{media.name} contains no audio samples", remedy="record it again", port="audio")
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
def _open_container(media: Media) -> Iterator[Any]:
    import av

    try:
        with av.open(io.BytesIO(media.content), metadata_errors="ignore") as container:
            yield container
    except (av.FFmpegError, ValueError) as error:
        raise InvalidRequest(
            f"cannot decode {media.name}: it is not a supported audio file",
            remedy="send a WAV, FLAC, Ogg, MP3 or M4A file",
            port="audio",
        ) from error

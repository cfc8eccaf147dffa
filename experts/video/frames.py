"""Decodes evenly spaced frames of videos, and encodes frames as videos."""

import io
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from experts.host.handler import Media
from experts.host.isolation import run_isolated
from services.common.errors import InvalidRequest, ModelFailed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

    Pixels = NDArray[np.uint8]

MAX_PIXELS = 8192 * 4320
MAX_SECONDS = 4 * 3600.0

_FORMATS = {"mp4": ("libx264", "yuv420p", "video/mp4"), "webm": ("libvpx-vp9", "yuv420p", "video/webm")}
_REMEDY = "send an MP4, WebM, MOV, MKV or AVI file"
_MAX_BUFFERED_FRAMES = 128
"""Maximum number of frames in memory while a whole video is decoded."""
_MAX_SIDE = 1280
"""Maximum side of decoded frames, because models process a few hundred pixels."""
_THREADS = 4
_MAX_DAMAGED_FRAMES = 3
"""Number of consecutive damaged frames that are skipped; after more, decoding stops."""


def sample_frames(media: Media, count: int, *, port: str = "video") -> "list[Image]":
    """Decodes a number of upright frames, evenly spaced from the first to the last; a short video repeats some.

    Raises:
        InvalidRequest: the video cannot be decoded, has no frames, is too large or too long, or DECODE_LIMIT.
    """
    return run_isolated(_sample_frames, media, count, port, file=media.name, port=port)


def _sample_frames(media: Media, count: int, port: str) -> "list[Image]":
    """Like sample_frames, in a worker process."""
    with _open_video(media, port) as container:
        times, keyframes = _read_timestamps(container)
    timestamps = [times[index] for index in _spread(len(times), count)] if times else []
    decoded_frames = _decode_at(media, sorted(set(timestamps)), keyframes, port) if timestamps else {}
    if decoded_frames:
        decoded = sorted(decoded_frames)  # a damaged frame is replaced by the preceding one
        return [decoded_frames[decoded[max(0, bisect_right(decoded, time) - 1)]] for time in timestamps]
    frames = _decode_all(media, port)
    if not frames:
        raise InvalidRequest(f"{media.name} is a video without frames", remedy="record it again", port=port)
    return [frames[index] for index in _spread(len(frames), count)]


def encode_video(frames: "Sequence[Pixels]", rate: float, name: str, kind: str = "mp4") -> Media:
    """Encodes RGB frames of equal size as a video; of odd sizes the last row or column is omitted.

    Args:
        frames: the pictures.
        rate: frames per second.
        name: file name without extension.
        kind: mp4 (H.264) or webm (VP9).

    Raises:
        ModelFailed: there are no frames.
    """
    import av

    if not len(frames):
        raise ModelFailed("the model made a video without frames", remedy="try another input or another model")
    codec, pixels, media_type = _FORMATS[kind]
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=kind) as container:
        height, width = (
            max(2, side - side % 2) for side in frames[0].shape[:2]
        )  # required by the pixel format of both codecs
        stream: Any = container.add_stream(codec, rate=Fraction(rate).limit_denominator(1001))
        stream.width, stream.height, stream.pix_fmt = width, height, pixels
        stream.options = {"crf": "18"} if kind == "mp4" else {"crf": "24", "b:v": "0"}
        for frame in frames:
            container.mux(
                stream.encode(av.VideoFrame.from_ndarray(_to_even_size(frame, height, width), format="rgb24"))
            )
        container.mux(stream.encode(None))
    return Media(buffer.getvalue(), media_type, f"{name}.{kind}")


def _to_even_size(frame: "Pixels", height: int, width: int) -> "Pixels":
    import numpy as np

    padded = np.pad(frame, ((0, max(0, height - frame.shape[0])), (0, max(0, width - frame.shape[1])), (0, 0)), "edge")
    return np.ascontiguousarray(padded[:height, :width])


def _spread(length: int, count: int) -> list[int]:
    if count == 1:
        return [length // 2]
    return [round(index * (length - 1) / (count - 1)) for index in range(count)]


@contextmanager
def _open_video(media: Media, port: str) -> Iterator[Any]:
    """Opens and checks a video; an error of FFmpeg becomes one InvalidRequest."""
    import av

    try:
        with av.open(io.BytesIO(media.content), metadata_errors="ignore") as container:
            _check(container, media, port)
            yield container
    except (av.FFmpegError, ValueError) as error:
        raise InvalidRequest(f"{media.name} is not a video that can be decoded", remedy=_REMEDY, port=port) from error


def _check(container: Any, media: Media, port: str) -> None:
    """Checks size and duration by the header, before any frame is decoded."""
    if not container.streams.video:
        problem = "has no pictures, only sound" if container.streams.audio else "is a video without frames"
        raise InvalidRequest(f"{media.name} {problem}", remedy="send a video with pictures", port=port)
    stream = container.streams.video[0]
    if stream.width * stream.height > MAX_PIXELS:
        size = f"{stream.width} x {stream.height} pixels"
        raise InvalidRequest(f"{media.name} has {size}", remedy="send it in 8K or smaller", port=port)
    if (container.duration or 0) > MAX_SECONDS * 1_000_000:
        hours = f"{MAX_SECONDS / 3600:g} hours"
        raise InvalidRequest(f"{media.name} is longer than {hours}", remedy="send only a part of it", port=port)
    stream.thread_type = "AUTO"
    stream.codec_context.thread_count = min(_THREADS, os.cpu_count() or 1)  # each thread has its own buffers


def _read_timestamps(container: Any) -> tuple[list[int], list[int]]:
    """Returns the timestamps of frames and key frames without decoding, or empty lists if packets have none."""
    packets = [packet for packet in container.demux(container.streams.video[0]) if packet.size]
    if any(packet.pts is None for packet in packets):
        return [], []
    return sorted(packet.pts for packet in packets), sorted(packet.pts for packet in packets if packet.is_keyframe)


def _decode_at(media: Media, timestamps: Sequence[int], keyframes: Sequence[int], port: str) -> "dict[int, Image]":
    """Decodes the frames at the given timestamps; seeks if a key frame is between one timestamp and the next."""
    import av

    decoded_frames: dict[int, Image] = {}
    with _open_video(media, port) as container:
        stream, remaining = container.streams.video[0], list(timestamps)
        while remaining:
            try:
                container.seek(remaining[0], stream=stream, backward=True)
            except av.FFmpegError:
                break
            previous_count = len(remaining)
            for frame in _decode(container, stream):
                while remaining and frame.pts is not None and frame.pts >= remaining[0]:
                    decoded_frames[remaining.pop(0)] = _to_upright(frame)
                if not remaining or (
                    len(remaining) < previous_count and _has_keyframe_between(keyframes, frame.pts or 0, remaining[0])
                ):
                    break
            if len(remaining) == previous_count:
                remaining.pop(0)  # it cannot be decoded
    return decoded_frames


def _has_keyframe_between(keyframes: Sequence[int], start: int, end: int) -> bool:
    index = bisect_right(keyframes, start)
    return index < len(keyframes) and keyframes[index] <= end


def _decode(container: Any, stream: Any) -> Iterator[Any]:
    """Yields decoded frames and skips up to three consecutive damaged ones."""
    import av

    failed = 0
    for packet in container.demux(stream):
        try:
            yield from packet.decode()
            failed = 0
        except av.FFmpegError:
            failed += 1
            if failed > _MAX_DAMAGED_FRAMES:
                return


def _decode_all(media: Media, port: str) -> "list[Image]":
    """Decodes a video without timestamps as a whole: such videos are raw streams, mostly short."""
    with _open_video(media, port) as container:
        frames, step = list[Any](), 1
        for number, frame in enumerate(_decode(container, container.streams.video[0])):
            if number % step == 0:
                frames.append(_to_upright(frame))
            if len(frames) >= _MAX_BUFFERED_FRAMES:
                frames, step = frames[::2], step * 2
        return frames


def _to_upright(frame: Any) -> "Image":
    """Returns the frame as players show it, rotated by its metadata."""
    image: Image = frame.to_image()
    image.thumbnail((_MAX_SIDE, _MAX_SIDE))
    degrees = round(getattr(frame, "rotation", 0) or 0)
    return image.rotate(degrees, expand=True) if degrees else image

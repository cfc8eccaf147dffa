"""Videos in and out: frames spread evenly over one, and one made of frames."""

import io
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from experts.host.handler import Media
from experts.host.isolation import isolated
from services.common.errors import InvalidRequest, ModelFailed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

    Pixels = NDArray[np.uint8]

MAX_PIXELS = 8192 * 4320
MAX_SECONDS = 4 * 3600.0

_FORMATS = {"mp4": ("libx264", "yuv420p", "video/mp4"), "webm": ("libvpx-vp9", "yuv420p", "video/webm")}
_REMEDY = "Send an MP4, WebM, MOV, MKV or AVI file."
_KEPT = 128
"""Most frames in memory of a video that has to be decoded as a whole."""
_SIDE = 1280
"""Frames are made no larger than that: models look at a few hundred pixels."""
_THREADS = 4
_CONCEALED = 3
"""Damaged frames in a row after which the rest is taken for lost."""


def sampled(media: Media, count: int, *, port: str = "video") -> "list[Image]":
    """So many frames, upright, at even distances from the first to the last; a short video repeats some.

    Raises:
        InvalidRequest: it cannot be decoded, has no frames, is too large or too long, or DECODE_LIMIT.
    """
    return isolated(_sampled, media, count, port, file=media.name, port=port)


def _sampled(media: Media, count: int, port: str) -> "list[Image]":
    """As sampled; in a worker process."""
    with _opened(media, port) as container:
        times, keys = _times(container)
    wanted = [times[place] for place in _places(len(times), count)] if times else []
    found = _found(media, sorted(set(wanted)), keys, port) if wanted else {}
    if found:
        known = sorted(found)  # what is damaged is shown by the frame before it
        return [found[known[max(0, bisect_right(known, time) - 1)]] for time in wanted]
    frames = _all(media, port)
    if not frames:
        raise InvalidRequest(f"{media.name} is a video without frames.", remedy="Record it again.", port=port)
    return [frames[place] for place in _places(len(frames), count)]


def written(frames: "Sequence[Pixels]", rate: float, name: str, kind: str = "mp4") -> Media:
    """The frames, RGB and all of one size, as a video; of odd sizes the last row or column is left out.

    Args:
        frames: the pictures.
        rate: how many a second.
        name: what a person would call it, without an ending.
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
        height, width = (max(2, side - side % 2) for side in frames[0].shape[:2])  # as the colours of both formats need
        stream: Any = container.add_stream(codec, rate=Fraction(rate).limit_denominator(1001))
        stream.width, stream.height, stream.pix_fmt = width, height, pixels
        stream.options = {"crf": "18"} if kind == "mp4" else {"crf": "24", "b:v": "0"}
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(_even(frame, height, width), format="rgb24")))
        container.mux(stream.encode(None))
    return Media(buffer.getvalue(), media_type, f"{name}.{kind}")


def _even(frame: "Pixels", height: int, width: int) -> "Pixels":
    import numpy as np

    grown = np.pad(frame, ((0, max(0, height - frame.shape[0])), (0, max(0, width - frame.shape[1])), (0, 0)), "edge")
    return np.ascontiguousarray(grown[:height, :width])


def _places(length: int, count: int) -> list[int]:
    if count == 1:
        return [length // 2]
    return [round(place * (length - 1) / (count - 1)) for place in range(count)]


@contextmanager
def _opened(media: Media, port: str) -> Iterator[Any]:
    """Whatever FFmpeg says against the bytes becomes one clear refusal."""
    import av

    try:
        with av.open(io.BytesIO(media.content), metadata_errors="ignore") as container:
            _check(container, media, port)
            yield container
    except (av.FFmpegError, ValueError) as error:
        raise InvalidRequest(f"{media.name} is not a video that can be decoded.", remedy=_REMEDY, port=port) from error


def _check(container: Any, media: Media, port: str) -> None:
    """Before anything is decoded: the header says how large it will be."""
    if not container.streams.video:
        what = "has no pictures in it, only sound" if container.streams.audio else "is a video without frames"
        raise InvalidRequest(f"{media.name} {what}.", remedy="Send a video with pictures.", port=port)
    stream = container.streams.video[0]
    if stream.width * stream.height > MAX_PIXELS:
        size = f"{stream.width} x {stream.height} pixels"
        raise InvalidRequest(f"{media.name} has {size}.", remedy="Send it in 8K or smaller.", port=port)
    if (container.duration or 0) > MAX_SECONDS * 1_000_000:
        hours = f"{MAX_SECONDS / 3600:g} hours"
        raise InvalidRequest(f"{media.name} is longer than {hours}.", remedy="Cut out the part you mean.", port=port)
    stream.thread_type = "AUTO"
    stream.codec_context.thread_count = min(_THREADS, os.cpu_count() or 1)  # each takes memory of its own


def _times(container: Any) -> tuple[list[int], list[int]]:
    """When frames and key frames are shown, read without decoding; nothing if the packets do not say."""
    packets = [packet for packet in container.demux(container.streams.video[0]) if packet.size]
    if any(packet.pts is None for packet in packets):
        return [], []
    return sorted(packet.pts for packet in packets), sorted(packet.pts for packet in packets if packet.is_keyframe)


def _found(media: Media, wanted: Sequence[int], keys: Sequence[int], port: str) -> "dict[int, Image]":
    """The frames of these times; from one to the next by way of a key frame, if there is one between them."""
    import av

    found: dict[int, Image] = {}
    with _opened(media, port) as container:
        stream, rest = container.streams.video[0], list(wanted)
        while rest:
            try:
                container.seek(rest[0], stream=stream, backward=True)
            except av.FFmpegError:
                break
            begun = len(rest)
            for frame in _decoded(container, stream):
                while rest and frame.pts is not None and frame.pts >= rest[0]:
                    found[rest.pop(0)] = _upright(frame)
                if not rest or (len(rest) < begun and _has_between(keys, frame.pts or 0, rest[0])):
                    break
            if len(rest) == begun:
                rest.pop(0)  # it cannot be decoded
    return found


def _has_between(keys: Sequence[int], here: int, there: int) -> bool:
    place = bisect_right(keys, here)
    return place < len(keys) and keys[place] <= there


def _decoded(container: Any, stream: Any) -> Iterator[Any]:
    """Frames; damaged ones are passed over while others follow."""
    import av

    failed = 0
    for packet in container.demux(stream):
        try:
            yield from packet.decode()
            failed = 0
        except av.FFmpegError:
            failed += 1
            if failed > _CONCEALED:
                return


def _all(media: Media, port: str) -> "list[Image]":
    """Every frame of a video that does not say when they are shown: raw streams, mostly short."""
    with _opened(media, port) as container:
        frames, step = list[Any](), 1
        for number, frame in enumerate(_decoded(container, container.streams.video[0])):
            if number % step == 0:
                frames.append(_upright(frame))
            if len(frames) >= _KEPT:
                frames, step = frames[::2], step * 2
        return frames


def _upright(frame: Any) -> "Image":
    """As players show it: telephones film sideways and say so."""
    image: Image = frame.to_image()
    image.thumbnail((_SIDE, _SIDE))
    turn = round(getattr(frame, "rotation", 0) or 0)
    return image.rotate(turn, expand=True) if turn else image

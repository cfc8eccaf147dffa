"""Encodes and decodes videos for tests."""

import io
from collections.abc import Sequence
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from experts.host.handler import Media

Pixels = NDArray[np.uint8]

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)


def solid_frame(colour: Sequence[int], width: int = 64, height: int = 48) -> Pixels:
    return np.full((height, width, 3), colour, dtype=np.uint8)


def encode_frames(frames: Sequence[Pixels], kind: str = "mp4", codec: str = "libx264", **options: str) -> Media:
    """Encodes frames in any container and codec that FFmpeg supports."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=kind) as container:
        stream: Any = container.add_stream(codec, rate=10, options=options)
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode(None))
    return Media(buffer.getvalue(), f"video/{kind}", f"film.{kind}")


def video_without_frames(kind: str = "mp4") -> Media:
    """Returns a file with a video stream without frames."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=kind) as container:
        stream: Any = container.add_stream("mpeg4", rate=10)
        stream.height, stream.width, stream.pix_fmt = 48, 64, "yuv420p"
        container.start_encoding()
    return Media(buffer.getvalue(), f"video/{kind}", f"empty.{kind}")


def decode_frames(media: Media) -> tuple[list[Pixels], float]:
    """Returns all frames and the frame rate."""
    container: Any
    with av.open(io.BytesIO(media.content)) as container:
        rate = float(container.streams.video[0].average_rate or 0)
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)], rate

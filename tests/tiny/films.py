"""Videos that tests make and read."""

import io
from collections.abc import Sequence
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from experts.host.handler import Media

Pixels = NDArray[np.uint8]

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)


def plain(colour: Sequence[int], width: int = 64, height: int = 48) -> Pixels:
    return np.full((height, width, 3), colour, dtype=np.uint8)


def filmed(frames: Sequence[Pixels], kind: str = "mp4", codec: str = "libx264", **options: str) -> Media:
    """The frames in any container and codec that FFmpeg writes."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=kind) as container:
        stream: Any = container.add_stream(codec, rate=10, options=options)
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode(None))
    return Media(buffer.getvalue(), f"video/{kind}", f"film.{kind}")


def silent_film(kind: str = "mp4") -> Media:
    """A file with a video stream in which there are no frames."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=kind) as container:
        stream: Any = container.add_stream("mpeg4", rate=10)
        stream.height, stream.width, stream.pix_fmt = 48, 64, "yuv420p"
        container.start_encoding()
    return Media(buffer.getvalue(), f"video/{kind}", f"empty.{kind}")


def seen(media: Media) -> tuple[list[Pixels], float]:
    """Every frame, and how many there are in a second."""
    container: Any
    with av.open(io.BytesIO(media.content)) as container:
        rate = float(container.streams.video[0].average_rate or 0)
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)], rate

"""Messages between an expert and one worker process: pickled, with pictures, arrays and bytes in shared memory.

The shared memory belongs to one worker and is used again for every message. Pages that are mapped already cost
nothing, so a decoded picture is copied twice at memory speed instead of travelling through a pipe.
"""

import io
import mmap
import os
import pickle
import select
import socket
import struct
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

LARGE_BYTES = 16 * 1024
"""Bytes, arrays and pictures from this size on travel in shared memory."""
MESSAGE_BYTES = 64 * 1024 * 1024
"""Longest message without what travels in shared memory: a result of text has no reason to be longer."""
KEPT_BYTES = 32 * 1024 * 1024
"""Shared memory that stays allocated between calls."""

_HEADER = struct.Struct("!QQ")
_STRIP_BYTES = 8 << 20
_MODES = {"RGB": 3, "RGBA": 4, "L": 1}
"""Modes of pictures that travel in shared memory, with their bytes per pixel."""


class MessageTooLong(Exception):
    """A message is longer than MESSAGE_BYTES."""


def create_memory() -> int:
    """A descriptor of memory that two processes can share; it has no name in any file system."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("hugginggpt-isolation")
    with tempfile.TemporaryFile() as file:  # macOS
        return os.dup(file.fileno())


class Channel:
    """One end of the connection between an expert and a worker process; one thread at a time may use it.

    Args:
        connection: a Unix stream socket.
        memory: descriptor of the shared memory.
    """

    def __init__(self, connection: socket.socket, memory: int) -> None:
        self._socket, self._memory = connection, memory
        self._map: mmap.mmap | None = None
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)

    def send(self, message: Any) -> None:
        """Sends a message.

        Raises:
            OSError: the other process has ended.
            MessageTooLong: there is too much outside shared memory.
        """
        body, parts = _pickled(message)
        if len(body) > MESSAGE_BYTES:
            raise MessageTooLong
        size = sum(part.size for part in parts)
        if size:
            with memoryview(self._mapped(size)) as view:
                start = 0
                for part in parts:
                    part.write(view[start : start + part.size])
                    start += part.size
        self._socket.sendall(_HEADER.pack(len(body), size) + body)

    def poll(self, seconds: float) -> bool:
        """Whether a message comes within so many seconds, or the other process ends."""
        return bool(self._poll.poll(seconds * 1000))

    def receive(self) -> Any:
        """The next message.

        Raises:
            EOFError: the other process has ended.
        """
        length, size = _HEADER.unpack(self._read(_HEADER.size))
        if length > MESSAGE_BYTES:
            raise EOFError("the message is too long")
        body = self._read(length)
        if not size:
            return _Unpickler(body, memoryview(b"")).load()
        with memoryview(self._mapped(size)) as view:
            return _Unpickler(body, view).load()

    def release(self) -> None:
        """Unmaps shared memory that is too large to keep; its content stays until the other end has read it."""
        if self._map and len(self._map) > KEPT_BYTES:
            self._map.close()
            self._map = None

    def shrink(self) -> None:
        """Frees shared memory that is too large to keep, once both ends have done with its content."""
        if self._map and len(self._map) > KEPT_BYTES:
            self.release()
            os.ftruncate(self._memory, 0)

    def close(self) -> None:
        self._socket.close()
        if self._map:
            self._map.close()
        os.close(self._memory)

    def _mapped(self, size: int) -> mmap.mmap:
        """The shared memory, at least so large. The other end may have made it larger or smaller."""
        actual = os.fstat(self._memory).st_size
        if actual < size:
            actual = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
            os.ftruncate(self._memory, actual)
        if self._map is None or len(self._map) != actual:
            if self._map:
                self._map.close()
            self._map = None
            self._map = mmap.mmap(self._memory, actual)
        return self._map

    def _read(self, count: int) -> bytes:
        content = bytearray()
        while len(content) < count:
            received = self._socket.recv(min(count - len(content), 1 << 20))
            if not received:
                raise EOFError
            content += received
        return bytes(content)


class _Part:
    """Bytes that go into shared memory."""

    def __init__(self, content: Any) -> None:
        self._view = memoryview(content).cast("B")
        self.size = self._view.nbytes

    def write(self, target: memoryview) -> None:
        target[:] = self._view


class _Picture:
    """A picture that goes into shared memory, strip by strip: it is never in memory a third time."""

    def __init__(self, image: Any) -> None:
        self._image = image
        self._row = image.width * _MODES[image.mode]
        self.size = self._row * image.height

    def write(self, target: memoryview) -> None:
        rows, (width, height) = max(1, _STRIP_BYTES // self._row), self._image.size
        for top in range(0, height, rows):
            bottom = min(height, top + rows)
            strip = self._image if rows >= height else self._image.crop((0, top, width, bottom))
            target[top * self._row : bottom * self._row] = strip.tobytes()


class _Layout:
    """What goes into shared memory, and where."""

    def __init__(self) -> None:
        self.parts: list[_Part | _Picture] = []
        self.arrays: list[int] = []
        """Start and size of each array, in the order in which they are unpickled."""
        self._end = 0

    def place(self, part: _Part | _Picture) -> tuple[int, int]:
        start, self._end = self._end, self._end + part.size
        self.parts.append(part)
        return start, part.size

    def is_small(self, buffer: pickle.PickleBuffer) -> bool:
        """Whether an array stays in the message; if not, it is given a place in shared memory."""
        raw = buffer.raw()
        if raw.nbytes < LARGE_BYTES:
            return True
        self.arrays += self.place(_Part(raw))
        return False


class _Pickler(pickle.Pickler):
    """Leaves large bytes, pictures and arrays out of the message, and says where they are in shared memory.

    The layout does not know the pickler: in a cycle of references a large picture would outlive its call.
    """

    def __init__(self, file: io.BytesIO, layout: _Layout) -> None:
        super().__init__(file, 5, buffer_callback=layout.is_small)
        self._layout = layout

    def persistent_id(self, obj: Any) -> Any:
        """Where in shared memory the object is; None for one that is pickled."""
        if type(obj) is bytes:
            return ("bytes", *self._layout.place(_Part(obj))) if len(obj) >= LARGE_BYTES else None
        if _is_large_picture(obj):
            return "picture", *self._layout.place(_Picture(obj)), obj.mode, obj.size, obj.info.get("icc_profile")
        return None


class _Unpickler(pickle.Unpickler):
    """Reads what the process at the other end of a socket pair wrote, which runs our own code."""

    def __init__(self, body: bytes, memory: memoryview) -> None:
        (count,) = _COUNT.unpack_from(body)
        places = struct.unpack_from(f"!{count}Q", body, _COUNT.size)
        pairs = zip(places[::2], places[1::2], strict=True)
        arrays = [bytearray(memory[start : start + size]) for start, size in pairs]
        super().__init__(io.BytesIO(body[_COUNT.size + 8 * count :]), buffers=arrays)
        self._memory = memory

    def persistent_load(self, pid: Any) -> Any:
        kind, start, size, *rest = pid
        with self._memory[start : start + size] as part:
            if kind == "bytes":
                return bytes(part)
            return _picture(part, *rest)


_COUNT = struct.Struct("!Q")


def _is_large_picture(obj: Any) -> bool:
    pillow = sys.modules.get("PIL.Image")  # an object of a module that is not imported cannot be there
    if pillow is None or not isinstance(obj, pillow.Image):
        return False
    return obj.mode in _MODES and obj.width * obj.height >= LARGE_BYTES


def _picture(pixels: memoryview, mode: str, size: tuple[int, int], profile: bytes | None) -> Any:
    from PIL import Image

    image = Image.frombytes(mode, size, pixels)
    if profile:
        image.info["icc_profile"] = profile
    return image


def _pickled(message: Any) -> tuple[bytes, Sequence[_Part | _Picture]]:
    """The message, and what goes into shared memory, in that order."""
    file = io.BytesIO()
    layout = _Layout()
    _Pickler(file, layout).dump(message)
    arrays = layout.arrays
    return _COUNT.pack(len(arrays)) + struct.pack(f"!{len(arrays)}Q", *arrays) + file.getvalue(), layout.parts

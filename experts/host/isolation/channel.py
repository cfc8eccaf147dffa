"""Channel between an expert and one worker process: pickled messages, with images, arrays and bytes in shared memory.

The shared memory belongs to one worker and is reused for every message. Mapped pages cost nothing, so a decoded image
is copied twice at memory speed instead of being written to a pipe.
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
"""Size from which bytes, arrays and images are passed in shared memory."""
MESSAGE_BYTES = 64 * 1024 * 1024
"""Maximum size of a message without its shared memory; text results are smaller."""
RETAINED_BYTES = 32 * 1024 * 1024
"""Maximum shared memory that stays allocated between calls."""

_HEADER = struct.Struct("!QQ")
_STRIP_BYTES = 8 << 20
_MODES = {"RGB": 3, "RGBA": 4, "L": 1}
"""Image modes that are passed in shared memory, with their bytes per pixel."""


class MessageTooLong(Exception):
    """A message is longer than MESSAGE_BYTES."""


def create_memory() -> int:
    """Creates anonymous memory that two processes can share; returns its descriptor."""
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
            MessageTooLong: the message without its shared memory is too long.
        """
        body, parts = _pickle(message)
        if len(body) > MESSAGE_BYTES:
            raise MessageTooLong
        size = sum(part.size for part in parts)
        if size:
            with memoryview(self._map_memory(size)) as view:
                start = 0
                for part in parts:
                    part.write(view[start : start + part.size])
                    start += part.size
        self._socket.sendall(_HEADER.pack(len(body), size) + body)

    def poll(self, seconds: float) -> bool:
        """Whether a message arrives, or the other process ends, within so many seconds."""
        return bool(self._poll.poll(seconds * 1000))

    def receive(self) -> Any:
        """Returns the next message.

        Raises:
            EOFError: the other process has ended.
        """
        length, size = _HEADER.unpack(self._read(_HEADER.size))
        if length > MESSAGE_BYTES:
            raise EOFError("the message is too long")
        body = self._read(length)
        if not size:
            return _Unpickler(body, memoryview(b"")).load()
        with memoryview(self._map_memory(size)) as view:
            return _Unpickler(body, view).load()

    def release(self) -> None:
        """Unmaps shared memory above RETAINED_BYTES; its content remains until the other end has read it."""
        if self._map and len(self._map) > RETAINED_BYTES:
            self._map.close()
            self._map = None

    def shrink(self) -> None:
        """Frees shared memory above RETAINED_BYTES; neither end may need its content."""
        if self._map and len(self._map) > RETAINED_BYTES:
            self.release()
            os.ftruncate(self._memory, 0)

    def close(self) -> None:
        self._socket.close()
        if self._map:
            self._map.close()
        os.close(self._memory)

    def _map_memory(self, size: int) -> mmap.mmap:
        """Maps the shared memory with at least so many bytes; the other end may have resized it."""
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
    """An image, copied into shared memory in strips to avoid a third copy of it in memory."""

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
    """The parts of a message in shared memory and their positions."""

    def __init__(self) -> None:
        self.parts: list[_Part | _Picture] = []
        self.arrays: list[int] = []
        """Start and size of each array, in the order in which they are unpickled."""
        self._end = 0

    def reserve(self, part: _Part | _Picture) -> tuple[int, int]:
        start, self._end = self._end, self._end + part.size
        self.parts.append(part)
        return start, part.size

    def is_small(self, buffer: pickle.PickleBuffer) -> bool:
        """Whether an array stays in the message; a large one is placed in shared memory."""
        raw = buffer.raw()
        if raw.nbytes < LARGE_BYTES:
            return True
        self.arrays += self.reserve(_Part(raw))
        return False


class _Pickler(pickle.Pickler):
    """Pickler that replaces large bytes, images and arrays by their positions in shared memory.

    The layout has no reference to the pickler, because a reference cycle would keep large images alive after the call.
    """

    def __init__(self, file: io.BytesIO, layout: _Layout) -> None:
        super().__init__(file, 5, buffer_callback=layout.is_small)
        self._layout = layout

    def persistent_id(self, obj: Any) -> Any:
        """Returns the object's position in shared memory; None for an object that is pickled."""
        if type(obj) is bytes:
            return ("bytes", *self._layout.reserve(_Part(obj))) if len(obj) >= LARGE_BYTES else None
        if _is_large_picture(obj):
            return "picture", *self._layout.reserve(_Picture(obj)), obj.mode, obj.size, obj.info.get("icc_profile")
        return None


class _Unpickler(pickle.Unpickler):
    """Unpickler of messages from the process at the other end of the socket pair, which is trusted."""

    def __init__(self, body: bytes, memory: memoryview) -> None:
        (count,) = _COUNT.unpack_from(body)
        offsets = struct.unpack_from(f"!{count}Q", body, _COUNT.size)
        pairs = zip(offsets[::2], offsets[1::2], strict=True)
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
    # Without the class there are no images: the module is not imported, or another thread is still importing it.
    image_class = getattr(sys.modules.get("PIL.Image"), "Image", None)
    if image_class is None or not isinstance(obj, image_class):
        return False
    return obj.mode in _MODES and obj.width * obj.height >= LARGE_BYTES


def _picture(pixels: memoryview, mode: str, size: tuple[int, int], profile: bytes | None) -> Any:
    from PIL import Image

    image = Image.frombytes(mode, size, pixels)
    if profile:
        image.info["icc_profile"] = profile
    return image


def _pickle(message: Any) -> tuple[bytes, Sequence[_Part | _Picture]]:
    """Returns the pickled message and its parts for shared memory, in their order there."""
    file = io.BytesIO()
    layout = _Layout()
    _Pickler(file, layout).dump(message)
    arrays = layout.arrays
    return _COUNT.pack(len(arrays)) + struct.pack(f"!{len(arrays)}Q", *arrays) + file.getvalue(), layout.parts

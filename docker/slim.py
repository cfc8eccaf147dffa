"""Takes from installed packages what nothing reads at run time: python slim.py FOLDER [PACKAGE ...].

What only compilers and type checkers read goes, and the symbols of shared libraries; of the packages that are named,
modules that nothing has imported so far, which is seen by their lack of bytecode, go as well.
"""

import struct
import sys
from collections.abc import Iterator
from importlib.util import cache_from_source
from pathlib import Path

SOURCES = {".a", ".c", ".h", ".pxd", ".pyi", ".pyx"}
ELF64 = b"\x7fELF\x02\x01"
HEADER, SEGMENT = struct.Struct("<32xQ14xHH6x"), struct.Struct("<8xQ16xQ16x")
"""Where segments are described, how long a description is, how many there are; where a segment begins, how long it is."""


def slim(folder: Path, packages: list[str]) -> None:
    for file in _files(folder):
        if file.suffix in SOURCES:
            file.unlink()
        elif ".so" in file.suffixes:
            _strip(file)
    for package in packages:
        for file in _files(folder / package):
            if not _imported(file):
                file.unlink()


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink())


def _imported(file: Path) -> bool:
    """Of extension modules: whether anything beside them was."""
    match file.suffix:
        case ".py":
            return Path(cache_from_source(str(file))).exists()
        case ".so":
            return (file.parent / "__pycache__").exists()
    return True


def _strip(library: Path) -> None:
    """Cuts a library off behind its last segment: programs load segments, only linkers and debuggers read sections.

    Nothing moves, unlike with binutils' strip: libraries that were patched after they were linked load still.
    """
    with library.open("r+b") as file:
        head = file.read(64)
        if not head.startswith(ELF64):
            return
        start, length, count = HEADER.unpack(head)
        file.seek(start)
        segments = SEGMENT.iter_unpack(file.read(length * count))
        file.truncate(max(offset + size for offset, size in segments))
        file.seek(40)
        file.write(bytes(8))
        file.seek(58)
        file.write(bytes(6))


if __name__ == "__main__":
    slim(Path(sys.argv[1]), sys.argv[2:])

"""Takes from the core image's packages what nothing reads at run time: python slim.py FOLDER, by their own Python.

On the way everything that the programs import gets its bytecode, since the root is read-only where they run.
"""

import struct
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

IMPORTED = """
asyncpg fastapi.responses google.protobuf.json_format google.rpc.error_details_pb2 grpc_health.v1.health
grpc_reflection.v1alpha.reflection grpc_status.rpc_status httpcore httpx jsonschema jwt.algorithms mcp.server
numpy.typing obstore.store openai.lib.streaming.chat openai.resources.chat.chat openai.resources.chat.completions
openai.resources.models opentelemetry.exporter.otlp.proto.grpc.metric_exporter
opentelemetry.exporter.otlp.proto.grpc.trace_exporter opentelemetry.exporter.prometheus pydantic_settings structlog
tenacity uvicorn.protocols.http.httptools_impl uvloop yaml
"""
"""What the programs import of others."""
NARROWED = ("numpy", "openai", "opentelemetry")
"""Packages of which only that is kept: they are large, and most of them is not for us."""
SOURCES = {".a", ".c", ".h", ".pxd", ".pyi", ".pyx"}
"""What only compilers and type checkers read."""
TESTS = "tests"
"""Folders in which packages have what tries themselves."""
ELF64 = b"\x7fELF\x02\x01"
HEADER, SEGMENT = struct.Struct("<32xQ14xHH6x"), struct.Struct("<8xQ16xQ16x")
"""Where segments are described, how long a description is, how many there are; where a segment begins, its length."""


def slim(folder: Path) -> None:
    for name in IMPORTED.split():
        import_module(name)
    loaded = {Path(file) for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))}
    for file in _files(folder):
        if file.suffix in SOURCES or (file not in loaded and _is_needless(file.relative_to(folder))):
            file.unlink()
        elif ".so" in file.suffixes:
            _strip(file)


def _is_needless(path: Path) -> bool:
    """Of what is not loaded: only packages that are kept whole may still need it, and nobody their tests."""
    return TESTS in path.parts[:-1] or (path.parts[0] in NARROWED and path.suffix in {".py", ".so"})


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink())


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
    slim(Path(sys.argv[1]))

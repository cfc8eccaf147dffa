"""Removes files from the core image's packages that are not needed at run time: python slim.py SITE_PACKAGES.

Run it with the Python of these packages. It imports what the programs import, which also writes the bytecode: the
root file system is read-only at run time.
"""

import struct
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

IMPORTED = """
asyncpg fastapi.responses google.protobuf.json_format google.protobuf.text_format google.rpc.error_details_pb2
grpc_health.v1.health grpc_reflection.v1alpha.reflection grpc_status.rpc_status httpcore httpx jsonschema
jwt.algorithms mcp.server numpy.typing obstore.store openai.lib.streaming.chat openai.resources.chat.chat
openai.resources.chat.completions openai.resources.models opentelemetry.exporter.otlp.proto.grpc.metric_exporter
opentelemetry.exporter.otlp.proto.grpc.trace_exporter opentelemetry.exporter.prometheus pydantic_settings structlog
tenacity uvicorn.protocols.http.httptools_impl uvloop yaml
"""
"""Third-party modules that the programs import."""
NARROWED = ("numpy", "openai", "opentelemetry")
"""Large packages, reduced to the modules that importing IMPORTED loads."""
SOURCES = {".a", ".c", ".h", ".pxd", ".pyi", ".pyx"}
"""File types that only compilers and type checkers read."""
TESTS = "tests"
"""Folder name of a package's own tests."""
ELF64 = b"\x7fELF\x02\x01"
HEADER, SEGMENT = struct.Struct("<32xQ14xHH6x"), struct.Struct("<8xQ16xQ16x")
"""ELF header: offset, entry size and count of the program headers. Program header: offset and size in the file."""


def slim(folder: Path) -> None:
    for name in IMPORTED.split():
        import_module(name)
    loaded = {Path(file) for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))}
    for file in _files(folder):
        if file.suffix in SOURCES or (file not in loaded and _is_unused(file.relative_to(folder))):
            file.unlink()
        elif ".so" in file.suffixes:
            _strip(file)


def _is_unused(path: Path) -> bool:
    """True for tests, and for modules of narrowed packages; only for files that were not loaded."""
    return TESTS in path.parts[:-1] or (path.parts[0] in NARROWED and path.suffix in {".py", ".so"})


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink())


def _strip(library: Path) -> None:
    """Truncates a library after its last segment: only linkers and debuggers read the sections behind it.

    Unlike binutils' strip this moves nothing, so libraries that patchelf changed after linking still load.
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

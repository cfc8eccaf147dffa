"""Generates the Python stubs of the protos: `python -m protos.generate`; `--check` only reports stale stubs."""

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc_tools
from google.rpc import code_pb2
from grpc_tools import protoc

ROOT = Path(__file__).parent.parent
FOLDER = Path("protos/hugginggpt")
PLUGINS = ("protoc-gen-mypy", "protoc-gen-mypy_grpc")


def proto_files() -> list[Path]:
    """All protos of this repository, relative to its root."""
    return sorted(path.relative_to(ROOT) for path in (ROOT / FOLDER).rglob("*.proto"))


def generate(into: Path) -> dict[Path, bytes]:
    """Writes all stubs below a folder. Returns their content by path; only protos with a service have gRPC stubs."""
    plugins = [f"--plugin={name}={Path(sys.prefix) / 'bin' / name}" for name in PLUGINS]
    outputs = ["--python_out", "--grpc_python_out"]
    typed = ["--mypy_out=quiet", "--mypy_grpc_out=quiet"]
    compile_protos(*plugins, *(f"{option}={into}" for option in outputs), *(f"{option}:{into}" for option in typed))
    for proto in proto_files():
        if "\nservice " not in (ROOT / proto).read_text(encoding="utf-8"):
            for stub in (into / proto.parent).glob(f"{proto.stem}_pb2_grpc.py*"):
                stub.unlink()
    return {path.relative_to(into): path.read_bytes() for path in _stubs(into)}


def compile_protos(*options: str) -> None:
    """Runs the protobuf compiler on all protos; ends the program if it fails."""
    well_known, google_apis = Path(grpc_tools.__file__).parent / "_proto", Path(code_pb2.__file__).parents[2]
    includes = [f"-I{folder}" for folder in (ROOT, well_known, google_apis)]
    if protoc.main(["protoc", *includes, *options, *map(str, proto_files())]):
        sys.exit("protoc failed")


def stale() -> list[Path]:
    """Stubs that are missing, superfluous or differ from what the protos generate."""
    with TemporaryDirectory() as folder:
        fresh = generate(Path(folder))
    present = {path.relative_to(ROOT) for path in _stubs(ROOT)}
    wrong = {path for path, content in fresh.items() if path not in present or (ROOT / path).read_bytes() != content}
    return sorted(wrong | (present - fresh.keys()))


def _stubs(root: Path) -> list[Path]:
    return sorted(path for path in (root / FOLDER).rglob("*_pb2*") if path.suffix in {".py", ".pyi"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if stubs are stale")
    if not parser.parse_args().check:
        generate(ROOT)
    elif wrong := stale():
        sys.exit("stale stubs: " + ", ".join(map(str, wrong)) + "\nrun `make protos`")


if __name__ == "__main__":
    main()

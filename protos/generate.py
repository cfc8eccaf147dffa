"""Makes the stubs from the protos: `python -m protos.generate`; with --check only says which are stale."""

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc_tools
from grpc_tools import protoc

ROOT = Path(__file__).parent.parent
FOLDER = Path("protos/hugginggpt/v1")
WITHOUT_SERVICE = ("types", "record")
PLUGINS = ("protoc-gen-mypy", "protoc-gen-mypy_grpc")


def generate(into: Path) -> dict[Path, bytes]:
    """Writes all stubs below a folder; gives them by path, those of protos without a service left out."""
    plugins = [f"--plugin={name}={Path(sys.prefix) / 'bin' / name}" for name in PLUGINS]
    outputs = ["--python_out", "--grpc_python_out"]
    typed = ["--mypy_out=quiet", "--mypy_grpc_out=quiet"]
    compile_protos(*plugins, *(f"{option}={into}" for option in outputs), *(f"{option}:{into}" for option in typed))
    for name in WITHOUT_SERVICE:
        for stub in (into / FOLDER).glob(f"{name}_pb2_grpc.py*"):
            stub.unlink()
    return {path.relative_to(into): path.read_bytes() for path in (into / FOLDER).glob("*_pb2*.py*")}


def compile_protos(*options: str) -> None:
    """Calls the compiler on all protos; ends the program if it fails."""
    protos = sorted(str(path.relative_to(ROOT)) for path in (ROOT / FOLDER).glob("*.proto"))
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    if protoc.main(["protoc", f"-I{ROOT}", f"-I{well_known}", *options, *protos]):
        sys.exit("protoc failed")


def stale() -> list[Path]:
    """Stubs that are not what the protos give."""
    with TemporaryDirectory() as folder:
        fresh = generate(Path(folder))
    there = {path.relative_to(ROOT) for path in (ROOT / FOLDER).glob("*_pb2*.py*")}
    wrong = {path for path, content in fresh.items() if path not in there or (ROOT / path).read_bytes() != content}
    return sorted(wrong | (there - fresh.keys()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if stubs are stale")
    if not parser.parse_args().check:
        generate(ROOT)
    elif wrong := stale():
        sys.exit("stale stubs: " + ", ".join(map(str, wrong)) + "\nmake them anew with `make protos`")


if __name__ == "__main__":
    main()

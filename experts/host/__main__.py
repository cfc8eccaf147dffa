"""Serves an expert from any folder: python -m experts.host FOLDER."""

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

from experts.host.app import serve_expert
from services.common.errors import FailedPrecondition, ServiceError


def package_in(folder: Path) -> str:
    """Makes a folder importable as a package and returns the package's name.

    Raises:
        FailedPrecondition: it has no tasks.py, or its name is not a valid or unique module name.
    """
    path, name = folder.resolve(), folder.resolve().name
    if not (path / "tasks.py").is_file():
        remedy = "give the folder of an expert, with tasks.py, models.json and optionally tasks.json"
        raise FailedPrecondition(f"there is no tasks.py in {folder}", remedy=remedy)
    if not name.isidentifier():
        raise FailedPrecondition(
            f"cannot import a folder named {name!r}", remedy="use only letters, digits and underscores in its name"
        )
    sys.path.insert(0, str(path.parent))
    found = find_spec(name)
    if found is None or str(path) not in (found.submodule_search_locations or ()):
        raise FailedPrecondition(f"another module is named {name}", remedy="rename the folder")
    return name


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experts.host",
        description="Serves the expert in a folder over gRPC.",
        epilog="Options of every expert may follow: --describe prints its tasks and models, --prefetch downloads them.",
    )
    parser.add_argument("folder", type=Path, help="folder with tasks.py and models.json")
    arguments, rest = parser.parse_known_args()
    try:
        package = package_in(arguments.folder)
    except ServiceError as error:
        sys.exit(f"{error.message}: {error.remedy}")
    serve_expert(package, rest)


if __name__ == "__main__":
    main()

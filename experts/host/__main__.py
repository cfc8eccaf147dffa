"""Serves an expert that lives in a folder of its own, wherever that is: python -m experts.host FOLDER."""

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

from experts.host.app import serve_expert
from services.common.errors import FailedPrecondition, ServiceError


def package_in(folder: Path) -> str:
    """The name under which a folder can be imported from now on, as a package.

    Raises:
        FailedPrecondition: it is no expert, or its name is none for a package or means another one.
    """
    whole, name = folder.resolve(), folder.resolve().name
    if not (whole / "tasks.py").is_file():
        remedy = "give the folder of an expert: tasks.py, models.json and, if need be, tasks.json"
        raise FailedPrecondition(f"there is no tasks.py in {folder}", remedy=remedy)
    if not name.isidentifier():
        raise FailedPrecondition(
            f"{name!r} cannot be imported", remedy="name the folder with letters, digits and underscores only"
        )
    sys.path.insert(0, str(whole.parent))
    found = find_spec(name)
    if found is None or str(whole) not in (found.submodule_search_locations or ()):
        raise FailedPrecondition(f"{name} is the name of another module", remedy="give the folder another name")
    return name


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experts.host", description="An expert in a folder, over gRPC.")
    parser.add_argument("folder", type=Path, help="with its tasks.py and models.json")
    arguments, rest = parser.parse_known_args()
    try:
        package = package_in(arguments.folder)
    except ServiceError as error:
        sys.exit(f"{error.message}: {error.remedy}")
    serve_expert(package, rest)


if __name__ == "__main__":
    main()

"""Serves an expert from any folder: python -m experts.host FOLDER."""

import argparse
import sys
from pathlib import Path

from experts.host.app import serve_expert
from experts.host.expert import package_in
from services.common.errors import ServiceError


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

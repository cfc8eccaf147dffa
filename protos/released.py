"""Protos change only by addition: `python -m protos.released --check` holds them against those last released.

Without --check today's protos and standard tasks become the released ones, unless they break a promise.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from protos.generate import FOLDER, ROOT, compile_protos
from protos.hugginggpt.tasks import read_tasks
from protos.promises import broken, of_protos, of_tasks

PROTOS = Path(__file__).parent / "released.binpb"
TASKS = Path(__file__).parent / "released_tasks.json"


def released_protos() -> FileDescriptorSet:
    """The oldest protos with which today's programs get along, and all that these import."""
    return FileDescriptorSet.FromString(PROTOS.read_bytes())


def todays_protos() -> FileDescriptorSet:
    with TemporaryDirectory() as folder:
        compiled = Path(folder) / "today.binpb"
        compile_protos("--include_imports", f"--descriptor_set_out={compiled}")
        return FileDescriptorSet.FromString(compiled.read_bytes())


def promises(protos: FileDescriptorSet, tasks: str) -> Mapping[str, str]:
    """What protos promise, and the standard tasks in a JSON list."""
    return {**of_protos(protos), **of_tasks(read_tasks(tasks).values())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if a promise is broken")
    arguments = parser.parse_args()
    protos, tasks = todays_protos(), (ROOT / FOLDER / "tasks.json").read_text(encoding="utf-8")
    before = promises(released_protos(), TASKS.read_text(encoding="utf-8"))
    if wrong := broken(before, promises(protos, tasks)):
        sys.exit("\n".join(["broken promises:", *wrong, "leave what was released as it is, and add beside it"]))
    if not arguments.check:
        PROTOS.write_bytes(protos.SerializeToString(deterministic=True))
        TASKS.write_text(tasks, encoding="utf-8")


if __name__ == "__main__":
    main()

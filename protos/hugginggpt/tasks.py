"""The standard task specifications, read from v1/tasks.json. All experts that offer one share its name and ports."""

import json
from functools import cache
from importlib.resources import files

from google.protobuf import json_format

from protos.hugginggpt.v1.task_pb2 import TaskSpec


@cache
def standard_tasks() -> dict[str, TaskSpec]:
    """The standard TaskSpecs by name, in the order of the file."""
    return read_tasks((files("protos.hugginggpt.v1") / "tasks.json").read_text(encoding="utf-8"))


def read_tasks(text: str) -> dict[str, TaskSpec]:
    """Reads TaskSpecs by name from a JSON list.

    Raises:
        ParseError: an entry is not a TaskSpec.
    """
    specs = [json_format.ParseDict(entry, TaskSpec()) for entry in json.loads(text)]
    return {spec.name: spec for spec in specs}

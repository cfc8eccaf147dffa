"""The standard kinds of task, read from tasks.json: one spelling and one set of ports for everybody."""

import json
from functools import cache
from importlib.resources import files

from google.protobuf import json_format

from protos.hugginggpt.v1.task_pb2 import TaskSpec


@cache
def standard_tasks() -> dict[str, TaskSpec]:
    """All standard TaskSpecs by name, in the file's order."""
    return read_tasks((files("protos.hugginggpt.v1") / "tasks.json").read_text(encoding="utf-8"))


def read_tasks(text: str) -> dict[str, TaskSpec]:
    """TaskSpecs by name, of a JSON list."""
    specs = [json_format.ParseDict(entry, TaskSpec()) for entry in json.loads(text)]
    return {spec.name: spec for spec in specs}

"""Format of pipeline files: a version and a JSON Schema."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

FAMILY, NEWEST = "hugginggpt/pipeline/", 1

_MAX_MESSAGE = 300
"""Length limit of an error message in characters: it may quote the whole file."""


class PipelineFileError(ValueError):
    """The content of a pipeline file is invalid.

    Args:
        message: what is wrong.
        remedy: what to do.
        path: keys and indexes of the part that is wrong.
    """

    def __init__(self, message: str, remedy: str, path: Sequence[str | int]) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.path = path


def pipeline_schema() -> bytes:
    """Returns the JSON Schema of pipeline files as JSON text."""
    return files("protos.hugginggpt").joinpath("pipeline.schema.json").read_bytes()


def check_pipeline(content: Mapping[str, Any]) -> None:
    """Checks the content of a pipeline file, without its references to tasks, models and inputs.

    Raises:
        PipelineFileError: it has another or a newer format, or violates the schema.
    """
    file_format = str(content.get("format"))
    version = file_format.removeprefix(FAMILY)
    if not file_format.startswith(FAMILY) or not (version.isascii() and version.isdecimal()):
        raise PipelineFileError(f"{file_format} is not a pipeline format", f"write {FAMILY}{NEWEST}", ("format",))
    if int(version) > NEWEST:
        raise PipelineFileError(
            f"{file_format} is newer than the formats that this version reads",
            f"update hugginggpt; this version reads up to {FAMILY}{NEWEST}",
            ("format",),
        )
    if error := best_match(_validator().iter_errors(content)):
        where = ".".join(str(step) for step in error.absolute_path)
        what = f"{where}: {error.message}" if where else error.message
        remedy = "see the output of hugginggpt export for the format"
        raise PipelineFileError(what[:_MAX_MESSAGE], remedy, list(error.absolute_path))


@cache
def _validator() -> Draft202012Validator:
    return Draft202012Validator(json.loads(pipeline_schema()))

"""A pipeline as one file that people read and write: YAML, of the format that pipeline.schema.json describes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from gateway.cli import document_file
from gateway.cli.document_file import Document
from gateway.cli.errors import USAGE, Problem
from gateway.client import Pipeline, Port

FAMILY, NEWEST = "hugginggpt/pipeline/", 1

_WRITTEN = {"arguments": "args", "parameters": "parameters", "pinned_model": "model", "pinned_revision": "revision"}
_WORDS = 300
"""Letters of what is said about an error: it may quote the whole file."""


@dataclass(frozen=True)
class Imported:
    """What a file has to say about a pipeline."""

    name: str
    plan: Sequence[Mapping[str, Any]]
    description: str = ""
    policy: Any = None
    inputs: Sequence[Port] = ()


def written(pipeline: Pipeline, house: str) -> str:
    """The file of a pipeline.

    Args:
        pipeline: whole.
        house: the URL of its gateway, where editors find the schema.
    """
    content = {
        "format": f"{FAMILY}{NEWEST}",
        "name": pipeline.name,
        **({"description": pipeline.description} if pipeline.description else {}),
        **({"policy": pipeline.policy} if pipeline.policy else {}),
        "inputs": [_parameter(port) for port in pipeline.inputs],
        "plan": [_task(task, pipeline.description) for task in pipeline.plan],
    }
    schema = f"# yaml-language-server: $schema={house}/v1/pipeline.schema.json\n"
    text = yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)
    return f"{schema}# {_origin(pipeline)}\n{text}"


def imported(document: Document, name: str) -> Imported:
    """What a file says: one that was exported, or a plan as ask --json prints it.

    Args:
        document: the file.
        name: what to call the pipeline; empty: as the file does.

    Raises:
        Problem: it is no pipeline, one of a newer format, or something in it is wrong.
    """
    content = document.content
    if not isinstance(content, dict) or "format" not in content:
        return _of_plan(document, name)
    _check_format(document)
    _check(document)
    return Imported(
        name=name or content["name"],
        plan=content["plan"],
        description=content.get("description", ""),
        policy=content.get("policy"),
        inputs=[Port.model_validate(port) for port in content.get("inputs", ())],
    )


def _of_plan(document: Document, name: str) -> Imported:
    plan = document_file.plan(document)
    if not name:
        raise Problem(f"{document.name} does not say what to call it", remedy="add --name NAME", status=USAGE)
    return Imported(name, plan)


def _check_format(document: Document) -> None:
    said = str(document.content["format"])
    version = said.removeprefix(FAMILY)
    if not said.startswith(FAMILY) or not (version.isascii() and version.isdecimal()):
        raise document.problem(f"{said} is no format of a pipeline", f"write {FAMILY}{NEWEST}", ("format",))
    if int(version) > NEWEST:
        raise document.problem(
            f"{said} is a newer format than this program knows",
            f"use a newer hugginggpt; this one reads up to {FAMILY}{NEWEST}",
            ("format",),
        )


def _check(document: Document) -> None:
    schema = json.loads(files("gateway").joinpath("pipeline.schema.json").read_bytes())
    if error := best_match(Draft202012Validator(schema).iter_errors(document.content)):
        where = ".".join(str(step) for step in error.absolute_path)
        what = f"{where}: {error.message}" if where else error.message
        raise document.problem(what[:_WORDS], "write it as hugginggpt export does", list(error.absolute_path))


def _parameter(port: Port) -> dict[str, Any]:
    said = {"name": port.name, "modality": port.modality, "required": port.required}
    return {**said, **({"description": port.description} if port.description else {})}


def _task(task: Mapping[str, Any], described: str) -> dict[str, Any]:
    known = {name: task[key] for key, name in _WRITTEN.items() if task.get(key)}
    source = {"source": task["source"]} if task.get("source", described) != described else {}
    return {"id": task["id"], "task": task["task"], **known, **source}


def _origin(pipeline: Pipeline) -> str:
    kept = f", kept {pipeline.create_time:%Y-%m-%d}" if pipeline.create_time else ""
    source = f" from run {pipeline.source_run_id}" if pipeline.source_run_id else ""
    return f"{pipeline.name}, version {pipeline.version}{kept}{source}. To keep it elsewhere: hugginggpt import"


class _Dumper(yaml.SafeDumper):
    """Writes what is said twice twice, text of several lines as such, and lists further in than their names."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  # as its base has it
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002  # likewise
        super().increase_indent(flow, indentless=False)


def _represented(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represented)

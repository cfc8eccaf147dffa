"""Pipeline files: YAML in the format of pipeline.schema.json."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from gateway.cli import document_file
from gateway.cli.document_file import Document
from gateway.cli.errors import USAGE, Problem
from gateway.client import Pipeline, Port
from protos.hugginggpt.pipeline_file import FAMILY, NEWEST, PipelineFileError, check_pipeline

_YAML_KEYS = {"arguments": "args", "parameters": "parameters", "pinned_model": "model", "pinned_revision": "revision"}


@dataclass(frozen=True)
class PipelineFile:
    """Content of a pipeline file."""

    name: str
    plan: Sequence[Mapping[str, Any]]
    description: str = ""
    policy: Any = None
    inputs: Sequence[Port] = ()


def serialize(pipeline: Pipeline, gateway_url: str) -> str:
    """Serializes a pipeline as YAML.

    Args:
        pipeline: pipeline with its plan.
        gateway_url: URL of its gateway, from which editors load the schema.
    """
    content = {
        "format": f"{FAMILY}{NEWEST}",
        "name": pipeline.name,
        **({"description": pipeline.description} if pipeline.description else {}),
        **({"policy": pipeline.policy} if pipeline.policy else {}),
        "inputs": [_parameter(port) for port in pipeline.inputs],
        "plan": [_task(task, pipeline.description) for task in pipeline.plan],
    }
    schema = f"# yaml-language-server: $schema={gateway_url}/v1/pipeline.schema.json\n"
    text = yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)
    return f"{schema}# {_origin(pipeline)}\n{text}"


def parse(document: Document, name: str) -> PipelineFile:
    """Parses an exported pipeline, or a plan printed by ask --json.

    Args:
        document: content of the file.
        name: name of the pipeline; empty to take it from the file.

    Raises:
        Problem: the file is not a pipeline, is invalid, or has a newer format.
    """
    content = document.content
    if not isinstance(content, dict) or "format" not in content:
        return _of_plan(document, name)
    try:
        check_pipeline(content)
    except PipelineFileError as error:
        raise document.problem(error.message, error.remedy, error.path) from None
    return PipelineFile(
        name=name or content["name"],
        plan=content["plan"],
        description=content.get("description", ""),
        policy=content.get("policy"),
        inputs=[Port.model_validate(port) for port in content.get("inputs", ())],
    )


def _of_plan(document: Document, name: str) -> PipelineFile:
    plan = document_file.plan(document)
    if not name:
        raise Problem(f"{document.name} has no name for the pipeline", remedy="add --name NAME", status=USAGE)
    return PipelineFile(name, plan)


def _parameter(port: Port) -> dict[str, Any]:
    content = {"name": port.name, "modality": port.modality, "required": port.required}
    return {**content, **({"description": port.description} if port.description else {})}


def _task(task: Mapping[str, Any], description: str) -> dict[str, Any]:
    known = {name: task[key] for key, name in _YAML_KEYS.items() if task.get(key)}
    source = {"source": task["source"]} if task.get("source", description) != description else {}
    return {"id": task["id"], "task": task["task"], **known, **source}


def _origin(pipeline: Pipeline) -> str:
    saved = f", saved {pipeline.create_time:%Y-%m-%d}" if pipeline.create_time else ""
    source = f" from run {pipeline.source_run_id}" if pipeline.source_run_id else ""
    return f"{pipeline.name}, version {pipeline.version}{saved}{source}. Import it with: hugginggpt import"


class _Dumper(yaml.SafeDumper):
    """Writes no aliases, multi-line text as blocks, and indented lists."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  # signature of the base class
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002  # signature of the base class
        super().increase_indent(flow, indentless=False)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)

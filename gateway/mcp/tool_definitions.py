"""Definitions of the MCP tools, with the descriptions by which a model chooses them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mcp.types import Tool, ToolAnnotations

from gateway.mcp import schemas
from gateway.mcp.schemas import Schema, object_schema, text
from gateway.mcp.single_task_tools import arguments_schema, required
from protos.hugginggpt.v1.task_pb2 import TaskSpec

INSTRUCTIONS = """Runs specialised models (vision, speech, documents, language, images) on files and text.
Send a request to `ask`; it plans the tasks itself. Send local files with `upload` first.
Short results are returned directly, long ones as links: read them with resources/read, or download them at their url.
If a result has ended=false, the run is still active: call get_run with its run_id. list_runs lists earlier runs."""

_RUN_OPTIONS: Schema = {
    "files": schemas.FILES,
    "wait_seconds": schemas.WAIT,
    "policy": schemas.POLICY,
    "cancel_with_call": schemas.CANCEL,
}
_REQUEST = text("The request in plain language.")

_READ_ONLY = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_CREATES = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
_CANCELS = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False)


def _tool(
    name: str,
    description: str,
    input_schema: Schema,
    output_schema: Schema | None = None,
    kind: ToolAnnotations = _CREATES,
) -> Tool:
    return Tool(
        name=name, description=description, input_schema=input_schema, output_schema=output_schema, annotations=kind
    )


FIXED: Mapping[str, Tool] = {
    tool.name: tool
    for tool in (
        _tool(
            "ask",
            "Process files and text with models: describe, read, transcribe, translate, detect, summarise, draw, speak."
            " Plans the tasks, runs them and answers. Use this tool first.",
            object_schema({"request": _REQUEST, "previous_run_id": schemas.CONTINUES, **_RUN_OPTIONS}, ["request"]),
            schemas.RUN,
        ),
        _tool(
            "plan",
            "Plan the tasks of a request without running them. Check or change the plan, then call run_plan.",
            object_schema({"request": _REQUEST, **_RUN_OPTIONS}, ["request"]),
            schemas.PLANNED,
        ),
        _tool(
            "run_plan",
            "Run a plan of dependent tasks, your own or from the tool plan. The whole plan is validated first.",
            object_schema(
                {
                    "plan": schemas.PLAN,
                    "request": text("The request to answer from the results. Without it, only results are returned."),
                    **_RUN_OPTIONS,
                },
                ["plan"],
            ),
            schemas.RUN,
        ),
        _tool(
            "get_run",
            "Get the state, results, answer and errors of a run. Waits up to wait_seconds for its end.",
            object_schema({"run_id": schemas.RUN_ID, "wait_seconds": schemas.WAIT}, ["run_id"]),
            schemas.RUN,
            _READ_ONLY,
        ),
        _tool(
            "list_runs",
            "List your runs, newest first, with their states and requests. For results, call get_run with a run_id.",
            object_schema(
                {
                    "states": schemas.RUN_STATES,
                    "page_size": schemas.PAGE_SIZE,
                    "page_token": text("next_page_token of the previous page."),
                }
            ),
            schemas.RUNS,
            _READ_ONLY,
        ),
        _tool(
            "cancel_run",
            "Cancel a run. The results of finished tasks stay available.",
            object_schema({"run_id": schemas.RUN_ID}, ["run_id"]),
            schemas.RUN,
            _CANCELS,
        ),
        _tool(
            "upload",
            "Get a URL for uploading one local file within 15 minutes. The upload's response has the file id (file_…).",
            object_schema({"name": text("Name of the file, such as photo.jpg.")}, ["name"]),
            schemas.UPLOAD,
        ),
        _tool(
            "tasks",
            "List the tasks that run_task can run; with a name, describe one task's inputs, parameters and outputs.",
            object_schema(
                {
                    "name": text("Name of a task, such as object-detection."),
                    "about": text("Only tasks whose description contains these words."),
                }
            ),
            schemas.TASKS,
            _READ_ONLY,
        ),
        _tool(
            "run_task",
            "Run one task by name, without planning. The tool tasks describes its inputs and parameters.",
            object_schema(
                {
                    "task": text("Name of the task, such as object-detection."),
                    "arguments": schemas.ARGUMENTS,
                    "parameters": schemas.PARAMETERS,
                    "model": text("Id of the model to use. Unset: the best one."),
                    **_RUN_OPTIONS,
                },
                ["task", "arguments"],
            ),
            schemas.RUN,
        ),
    )
}
"""Tools that are always available."""


@dataclass(frozen=True)
class ExposedTasks:
    """Tasks that the operator exposes as tools of their own."""

    names: Iterable[str] = ()

    def tools(self, specs: Mapping[str, TaskSpec]) -> list[Tool]:
        """Tools of the exposed tasks that are available now."""
        return [_of_task(specs[name]) for name in self.names if name in specs and name not in FIXED]


def _of_task(spec: TaskSpec) -> Tool:
    properties = arguments_schema(spec) | {"wait_seconds": schemas.WAIT, "policy": schemas.POLICY}
    return _tool(spec.name, spec.description, object_schema(properties, required(spec.inputs)), schemas.RUN)

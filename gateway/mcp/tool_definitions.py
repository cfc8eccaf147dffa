"""What an agent can do here, in the words it chooses by."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mcp.types import Tool, ToolAnnotations

from gateway.mcp import schemas
from gateway.mcp.schemas import Schema, taking, text
from gateway.mcp.single_task_tools import arguments_schema, required
from protos.hugginggpt.v1.task_pb2 import TaskSpec

INSTRUCTIONS = """Runs specialised models (vision, speech, documents, language, images) on files and words.
Say what is wanted to `ask`; it plans the tasks itself. Local files go in through `upload` first.
Results are short; long ones come as links, read with resources/read or downloaded at their url.
A run_id without an end means the work goes on: call get_run."""

_OUTCOME: Schema = {
    "files": schemas.FILES,
    "wait_seconds": schemas.WAIT,
    "policy": schemas.POLICY,
    "cancel_with_call": schemas.CANCEL,
}
_REQUEST = text("What is wanted, in plain words.")

_READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_MAKES = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
_STOPS = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False)


def _tool(
    name: str, description: str, takes: Schema, gives: Schema | None = None, kind: ToolAnnotations = _MAKES
) -> Tool:
    return Tool(name=name, description=description, input_schema=takes, output_schema=gives, annotations=kind)


FIXED: Mapping[str, Tool] = {
    tool.name: tool
    for tool in (
        _tool(
            "ask",
            "Get something done with models: describe, read, transcribe, translate, detect, summarise, draw, speak … "
            "It plans the tasks, runs them and answers. Use this first.",
            taking({"request": _REQUEST, "previous_run_id": schemas.CONTINUES, **_OUTCOME}, ["request"]),
            schemas.RUN,
        ),
        _tool(
            "plan",
            "See which tasks a request would become, without running any. Check or change them, then run_plan.",
            taking({"request": _REQUEST, **_OUTCOME}, ["request"]),
            schemas.PLANNED,
        ),
        _tool(
            "run_plan",
            "Run a plan, your own or from the tool plan: dependent tasks in one call. All of it is checked first.",
            taking(
                {
                    "plan": schemas.PLAN,
                    "request": text("What the answer should be about; without it results come without an answer."),
                    **_OUTCOME,
                },
                ["plan"],
            ),
            schemas.RUN,
        ),
        _tool(
            "get_run",
            "See how a run stands: state, results, answer, what failed and what helps. Waits a while for its end.",
            taking({"run_id": schemas.RUN_ID, "wait_seconds": schemas.WAIT}, ["run_id"]),
            schemas.RUN,
            _READS,
        ),
        _tool(
            "cancel_run",
            "Stop a run. What has finished is kept.",
            taking({"run_id": schemas.RUN_ID}, ["run_id"]),
            schemas.RUN,
            _STOPS,
        ),
        _tool(
            "upload",
            "Get a URL to send one local file to, within 15 minutes. The answer there has the id (file_…) for files.",
            taking({"name": text("The file's name, such as photo.jpg.")}, ["name"]),
            schemas.UPLOAD,
        ),
        _tool(
            "tasks",
            "List the single tasks that run_task can run; with a name, all that one of them takes and gives.",
            taking(
                {
                    "name": text("One kind of task, such as object-detection."),
                    "about": text("Only kinds whose description has these words."),
                }
            ),
            schemas.TASKS,
            _READS,
        ),
        _tool(
            "run_task",
            "Run one task by its name, without a planner: when you know which one. tasks tells what it takes.",
            taking(
                {
                    "task": text("Its name, such as object-detection."),
                    "arguments": schemas.ARGUMENTS,
                    "parameters": schemas.PARAMETERS,
                    "model": text("The only model that may run it. Unset: the best one."),
                    **_OUTCOME,
                },
                ["task", "arguments"],
            ),
            schemas.RUN,
        ),
    )
}
"""The tools that are always there."""


@dataclass(frozen=True)
class Chosen:
    """Kinds of task that the operator has made tools of their own."""

    names: Iterable[str] = ()

    def tools(self, specs: Mapping[str, TaskSpec]) -> list[Tool]:
        """Those of them that can be run now."""
        return [_of_task(specs[name]) for name in self.names if name in specs and name not in FIXED]


def _of_task(spec: TaskSpec) -> Tool:
    takes = arguments_schema(spec) | {"wait_seconds": schemas.WAIT, "policy": schemas.POLICY}
    return _tool(spec.name, spec.description, taking(takes, required(spec.inputs)), schemas.RUN)

"""Renders runs as tool results: a short text, structured content, and links to large content."""

import json
import re
from collections.abc import Iterable
from typing import Any

from mcp.types import CallToolResult, ContentBlock, ResourceLink, TextContent

from gateway.core import artifact_links
from gateway.json_encoder import dumps, encode
from gateway.mcp import resources
from gateway.mcp.run_progress import active_state
from protos.hugginggpt.run_state import ENDED_RUN_STATES, UNFINISHED_TASK_STATES
from protos.hugginggpt.v1.artifact_pb2 import Artifact, Value
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.gateway_pb2 import ListRunsResponse
from protos.hugginggpt.v1.plan_pb2 import NOTE_KIND_CHAT
from protos.hugginggpt.v1.run_pb2 import (
    RUN_STATE_FAILED,
    TASK_STATE_CANCELLED,
    TASK_STATE_SKIPPED,
    Run,
    TaskStatus,
)
from services.common.errors import ServiceError

ANSWER_CHARACTERS = 8_000
"""Length limit of an answer that is returned completely."""

OUTPUT_CHARACTERS = 2_000
"""Length limit of a task's output that is returned completely."""

REQUEST_CHARACTERS = 200
"""Length limit of a request in the list of runs."""

_EXCERPT_CHARACTERS = 300
_REMEDIES = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"GET /readyz or ", ""),
        (r" or `GET /v1/[\w-]+`", ""),
        (r"`?GET /v1/runs`?", "the tool list_runs"),
        (r"GET /v1/files", "resources/list"),
        (r"`?hugginggpt tasks`?", "the tool tasks"),
        (r"see `hugginggpt models`", "name no model, or see the tool tasks"),
    )
)
"""Parts of remedies that only clients of HTTP and the command line can follow, and what agents can do instead."""

_ENDINGS = {TASK_STATE_SKIPPED: "was skipped", TASK_STATE_CANCELLED: "was cancelled"}


def error_result(error: ServiceError) -> CallToolResult:
    """Renders the error of a tool call."""
    lines = [f"{error.message} ({error.reason})"]
    lines += [f"Remedy: {remedy_for_agents(error.remedy)}"] if error.remedy else []
    return CallToolResult(content=[TextContent(text="\n".join(lines))], is_error=True)


def remedy_for_agents(remedy: str) -> str:
    """Replaces HTTP routes and commands in a remedy with the tools that do the same."""
    for pattern, replacement in _REMEDIES:
        remedy = pattern.sub(replacement, remedy)
    return remedy


def text_result(text: str, structured: dict[str, Any]) -> CallToolResult:
    """Renders text with structured content."""
    return CallToolResult(content=[TextContent(text=text)], structured_content=structured)


def run_result(run: Run, site: str, *, is_outcome: bool = True) -> CallToolResult:
    """Renders the present state of a run.

    Args:
        run: the run.
        site: scheme and host of this gateway, for download URLs.
        is_outcome: whether the call started the run, so that a failed run is a failed call.
    """
    artifacts = artifact_links.output_artifacts(run.tasks) if run.state in ENDED_RUN_STATES else []
    content: list[ContentBlock] = [TextContent(text=_text(run))]
    content += [_link(artifact, site) for artifact in artifacts]
    structured = _head(run) | _answer(run)
    structured["files"] = [_file(artifact, site) for artifact in artifacts]
    structured["tasks"] = [_task(run.run_id, status) for status in run.tasks]
    is_failed = is_outcome and run.state == RUN_STATE_FAILED
    return CallToolResult(content=content, structured_content=structured, is_error=is_failed)


def runs_result(page: ListRunsResponse) -> CallToolResult:
    """Renders a page of the list of runs."""
    runs = [_listed(run) for run in page.runs]
    lines = [f"{run['run_id']} ({run['state']}): {run['request']}" for run in runs]
    structured: dict[str, Any] = {"runs": runs}
    if page.next_page_token:
        structured["next_page_token"] = page.next_page_token
        lines.append(f"More: call list_runs with page_token {page.next_page_token}")
    return text_result("\n".join(lines) or "No run matches.", structured)


def _listed(run: Run) -> dict[str, Any]:
    request = " ".join(run.spec.request.split())
    content = {
        "run_id": run.run_id,
        "state": _state(run),
        "ended": run.state in ENDED_RUN_STATES,
        "request": request if len(request) <= REQUEST_CHARACTERS else f"{request[: REQUEST_CHARACTERS - 1]}…",
    }
    optional = {"created": encode(run).get("create_time"), "conversation_id": run.conversation_id}
    return content | {name: value for name, value in optional.items() if value}


def plan_result(run: Run) -> CallToolResult:
    """Renders the plan of a run in plan mode."""
    plan = [encode(status.task) for status in run.tasks]
    lines = [_text(run)] if run.state not in ENDED_RUN_STATES or run.HasField("failure") else []
    lines += [note.text for note in run.notes]
    lines += [dumps(plan).decode()] if plan else []
    structured = _head(run) | {"plan": plan}
    is_failed = run.state == RUN_STATE_FAILED
    return CallToolResult(
        content=[TextContent(text="\n".join(lines))], structured_content=structured, is_error=is_failed
    )


def _head(run: Run) -> dict[str, Any]:
    content: dict[str, Any] = {"run_id": run.run_id, "state": _state(run), "ended": run.state in ENDED_RUN_STATES}
    if notes := [note.text for note in run.notes if note.kind != NOTE_KIND_CHAT]:
        content["notes"] = notes
    if run.HasField("failure"):
        content["failure"] = _failure(run.failure)
    return content


def _state(run: Run) -> str:
    return str(encode(Run(state=run.state))["state"])


def _answer(run: Run) -> dict[str, str]:
    if len(run.answer) <= ANSWER_CHARACTERS:
        return {"answer": run.answer} if run.answer else {}
    return {"answer": f"{run.answer[:_EXCERPT_CHARACTERS]}…", "answer_uri": resources.answer_uri(run.run_id)}


def _text(run: Run) -> str:
    is_ended = run.state in ENDED_RUN_STATES
    lines = [] if is_ended else [f"The run {run.run_id} {active_state(run)}. Call get_run for its outcome."]
    if run.answer:
        answer = _answer(run)
        lines += [answer["answer"], *([f"Full answer: {answer['answer_uri']}"] if "answer_uri" in answer else [])]
    elif is_ended:
        lines += _results(run)
    lines += [_task_failure(status) for status in run.tasks if status.result.HasField("failure")]
    if run.HasField("failure"):
        lines.append(_sentence(f"The run is {_state(run)}", run.failure))
    return "\n".join(lines) or f"The run {run.run_id} is {_state(run)}."


def _results(run: Run) -> Iterable[str]:
    """A line per output; only the text output of tasks that have one."""
    for status in run.tasks:
        outputs = status.result.outputs
        for port in ["text"] if "text" in outputs else sorted(outputs):
            content = _output_text(run.run_id, status.task.id, port, outputs[port])
            yield f"{status.task.id}. {status.task.task}, {port}: {content}"


def _output_text(run_id: str, task_id: int, port: str, value: Value) -> str:
    if value.HasField("artifact"):
        return value.artifact.name or resources.artifact_uri(value.artifact)
    content = value.text if value.HasField("text") else value.json
    if len(content) <= OUTPUT_CHARACTERS:
        return content
    return f"{content[:_EXCERPT_CHARACTERS]}… (full content: {resources.output_uri(run_id, task_id, port)})"


def _task_failure(status: TaskStatus) -> str:
    """States how a task ended, or that an attempt failed at a task that can still succeed."""
    task = f"{status.task.id} ({status.task.task})"
    if status.state in UNFINISHED_TASK_STATES:
        attempt = Failure(message=status.result.failure.message)  # its remedy is for a task that has failed
        return _sentence(f"Attempt {status.result.attempt} of task {task} failed", attempt) + " The task has not ended."
    return _sentence(f"Task {task} {_ENDINGS.get(status.state, 'failed')}", status.result.failure)


def _sentence(what: str, failure: Failure) -> str:
    reason = f": {failure.message}" if failure.message else ""
    return f"{what}{reason}." + (f" Remedy: {remedy_for_agents(failure.remedy)}" if failure.remedy else "")


def _task(run_id: str, status: TaskStatus) -> dict[str, Any]:
    content: dict[str, Any] = {"id": status.task.id, "task": status.task.task}
    if state := encode(TaskStatus(state=status.state)).get("state"):
        content["state"] = state
    if model := status.result.by.model_id or status.candidate.model_id:
        content["model"] = model
    if status.result.outputs:
        content["outputs"] = {
            port: _output(run_id, status.task.id, port, value) for port, value in sorted(status.result.outputs.items())
        }
    if status.result.HasField("failure"):
        content["failure"] = _failure(status.result.failure)
    return content


def _output(run_id: str, task_id: int, port: str, value: Value) -> Any:
    if value.HasField("artifact"):
        artifact = value.artifact
        attributes = {"name": artifact.name, "media_type": artifact.media_type, "size_bytes": artifact.size_bytes}
        return {"uri": resources.artifact_uri(artifact), **attributes}
    content = value.text if value.HasField("text") else value.json
    if len(content) > OUTPUT_CHARACTERS:
        uri = resources.output_uri(run_id, task_id, port)
        return {"uri": uri, "size_bytes": len(content.encode()), "beginning": content[:_EXCERPT_CHARACTERS]}
    return value.text if value.HasField("text") else json.loads(value.json)


def _failure(failure: Failure) -> dict[str, Any]:
    fields = ("reason", "message", "remedy", "port", "code")
    content = {key: text for key in fields if (text := getattr(failure, key))}
    return content | ({"remedy": remedy_for_agents(failure.remedy)} if failure.remedy else {})


def _file(artifact: Artifact, site: str) -> dict[str, Any]:
    return {
        "name": artifact.name,
        "media_type": artifact.media_type,
        "size_bytes": artifact.size_bytes,
        "uri": resources.artifact_uri(artifact),
        "url": artifact_links.artifact_url(artifact, site),
    }


def _link(artifact: Artifact, site: str) -> ResourceLink:
    return ResourceLink(
        uri=resources.artifact_uri(artifact),
        name=artifact.name or "file",
        mime_type=artifact.media_type,
        size=artifact.size_bytes,
        description=f"Download: {artifact_links.artifact_url(artifact, site)}",
    )

"""Runs as an agent is told of them: a few words, the facts, and links to what is large."""

import json
from collections.abc import Iterable
from typing import Any

from mcp.types import CallToolResult, ContentBlock, ResourceLink, TextContent

from gateway.json_encoder import dumps, encode
from gateway.mcp import resource_uris
from gateway.openai import links
from gateway.runs import ENDED
from protos.hugginggpt.v1.artifact_pb2 import Artifact, Value
from protos.hugginggpt.v1.failure_pb2 import Failure
from protos.hugginggpt.v1.plan_pb2 import NOTE_KIND_CHAT
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_FAILED, Run, TaskStatus
from services.common.errors import ServiceError

ANSWER_LETTERS = 8_000
"""Longest answer told whole."""

OUTPUT_LETTERS = 2_000
"""Longest output of a task told whole."""

_BEGINNING = 300


def refused(error: ServiceError) -> CallToolResult:
    """Why a tool has done nothing."""
    lines = [f"{error.message} ({error.reason})"]
    lines += [f"What helps: {error.remedy}"] if error.remedy else []
    return CallToolResult(content=[TextContent(text="\n".join(lines))], is_error=True)


def facts(words: str, structured: dict[str, Any]) -> CallToolResult:
    """What a tool has found out."""
    return CallToolResult(content=[TextContent(text=words)], structured_content=structured)


def told(run: Run, site: str, *, asked_for: bool = True) -> CallToolResult:
    """A run as it stands.

    Args:
        run: it.
        site: scheme and host under which artifacts are fetched.
        asked_for: the call was for its outcome: failing is the call's failure, too.
    """
    made = links.made(run.tasks) if run.state in ENDED else []
    content: list[ContentBlock] = [TextContent(text=_words(run))]
    content += [_link(artifact, site) for artifact in made]
    structured = _head(run) | _answer(run)
    structured["files"] = [_file(artifact, site) for artifact in made]
    structured["tasks"] = [_task(run.run_id, status) for status in run.tasks]
    failed = asked_for and run.state == RUN_STATE_FAILED
    return CallToolResult(content=content, structured_content=structured, is_error=failed)


def planned(run: Run) -> CallToolResult:
    """A run that was for its plan alone."""
    plan = [encode(status.task) for status in run.tasks]
    words = [_words(run)] if run.state not in ENDED or run.HasField("failure") else []
    words += [note.text for note in run.notes]
    words += [dumps(plan).decode()] if plan else []
    structured = _head(run) | {"plan": plan}
    failed = run.state == RUN_STATE_FAILED
    return CallToolResult(content=[TextContent(text="\n".join(words))], structured_content=structured, is_error=failed)


def _head(run: Run) -> dict[str, Any]:
    known: dict[str, Any] = {"run_id": run.run_id, "state": _state(run), "ended": run.state in ENDED}
    if notes := [note.text for note in run.notes if note.kind != NOTE_KIND_CHAT]:
        known["notes"] = notes
    if run.HasField("failure"):
        known["failure"] = _failure(run.failure)
    return known


def _state(run: Run) -> str:
    return str(encode(Run(state=run.state))["state"])


def _answer(run: Run) -> dict[str, str]:
    if len(run.answer) <= ANSWER_LETTERS:
        return {"answer": run.answer} if run.answer else {}
    return {"answer": f"{run.answer[:_BEGINNING]}…", "answer_uri": resource_uris.of_answer(run.run_id)}


def _words(run: Run) -> str:
    lines = [] if run.state in ENDED else [_under_way(run)]
    if run.answer:
        told = _answer(run)
        lines += [told["answer"], *([f"The whole answer: {told['answer_uri']}"] if "answer_uri" in told else [])]
    elif run.state in ENDED:
        lines += _results(run)
    lines += [_failed(status) for status in run.tasks if status.result.HasField("failure")]
    if run.HasField("failure"):
        lines.append(_sentence(f"The run is {_state(run)}", run.failure))
    return "\n".join(lines) or f"The run {run.run_id} is {_state(run)}."


def _under_way(run: Run) -> str:
    done = sum(status.HasField("result") for status in run.tasks)
    return (
        f"The run {run.run_id} is {_state(run)}; {done} of {len(run.tasks)} planned tasks are over. "
        "Its outcome comes with get_run."
    )


def _results(run: Run) -> Iterable[str]:
    """In the words a task has for readers, if it has any."""
    for status in run.tasks:
        outputs = status.result.outputs
        for port in ["text"] if "text" in outputs else sorted(outputs):
            spoken = _spoken(run.run_id, status.task.id, port, outputs[port])
            yield f"{status.task.id}. {status.task.task}, {port}: {spoken}"


def _spoken(run_id: str, task_id: int, port: str, value: Value) -> str:
    if value.HasField("artifact"):
        return value.artifact.name or resource_uris.of_artifact(value.artifact)
    content = value.text if value.HasField("text") else value.json
    if len(content) <= OUTPUT_LETTERS:
        return content
    return f"{content[:_BEGINNING]}… (whole: {resource_uris.of_output(run_id, task_id, port)})"


def _failed(status: TaskStatus) -> str:
    return _sentence(f"Task {status.task.id} ({status.task.task}) failed", status.result.failure)


def _sentence(what: str, failure: Failure) -> str:
    why = f": {failure.message}" if failure.message else ""
    return f"{what}{why}." + (f" What helps: {failure.remedy}" if failure.remedy else "")


def _task(run_id: str, status: TaskStatus) -> dict[str, Any]:
    known: dict[str, Any] = {"id": status.task.id, "task": status.task.task}
    if state := encode(TaskStatus(state=status.state)).get("state"):
        known["state"] = state
    if model := status.result.by.model_id or status.candidate.model_id:
        known["model"] = model
    if status.result.outputs:
        known["outputs"] = {
            port: _output(run_id, status.task.id, port, value) for port, value in sorted(status.result.outputs.items())
        }
    if status.result.HasField("failure"):
        known["failure"] = _failure(status.result.failure)
    return known


def _output(run_id: str, task_id: int, port: str, value: Value) -> Any:
    if value.HasField("artifact"):
        artifact = value.artifact
        named = {"name": artifact.name, "media_type": artifact.media_type, "size_bytes": artifact.size_bytes}
        return {"uri": resource_uris.of_artifact(artifact), **named}
    content = value.text if value.HasField("text") else value.json
    if len(content) > OUTPUT_LETTERS:
        uri = resource_uris.of_output(run_id, task_id, port)
        return {"uri": uri, "size_bytes": len(content.encode()), "beginning": content[:_BEGINNING]}
    return value.text if value.HasField("text") else json.loads(value.json)


def _failure(failure: Failure) -> dict[str, Any]:
    wanted = ("reason", "message", "remedy", "port", "code")
    return {key: text for key in wanted if (text := getattr(failure, key))}


def _file(artifact: Artifact, site: str) -> dict[str, Any]:
    return {
        "name": artifact.name,
        "media_type": artifact.media_type,
        "size_bytes": artifact.size_bytes,
        "uri": resource_uris.of_artifact(artifact),
        "url": links.address(artifact, site),
    }


def _link(artifact: Artifact, site: str) -> ResourceLink:
    return ResourceLink(
        uri=resource_uris.of_artifact(artifact),
        name=artifact.name or "file",
        mime_type=artifact.media_type,
        size=artifact.size_bytes,
        description=f"Download: {links.address(artifact, site)}",
    )

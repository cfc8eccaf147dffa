"""Input items of a response."""

from collections.abc import Iterable
from typing import Any

from gateway.openai.ids import MESSAGE, object_id
from gateway.openai.links import artifact_url
from protos.hugginggpt.v1.artifact_pb2 import NamedValue
from protos.hugginggpt.v1.run_pb2 import ROLE_ASSISTANT, ROLE_USER, Run, Turn


def list_input_items(run: Run, site: str) -> dict[str, Any]:
    """Lists the messages of a run, last one first."""
    request = Turn(role=ROLE_USER, text=run.spec.request, attachments=run.spec.inputs)
    items = [_item(run.run_id, number, turn, site) for number, turn in enumerate([*run.spec.history, request])]
    items.reverse()
    return {
        "object": "list",
        "data": items,
        "first_id": items[0]["id"],
        "last_id": items[-1]["id"],
        "has_more": False,
    }


def _item(run_id: str, number: int, turn: Turn, site: str) -> dict[str, Any]:
    is_user = turn.role != ROLE_ASSISTANT
    text = {"type": "input_text" if is_user else "output_text", "text": turn.text}
    return {
        "id": f"{object_id(MESSAGE, run_id)}_{number}",
        "type": "message",
        "role": "user" if is_user else "assistant",
        "status": "completed",
        "content": [text | ({} if is_user else {"annotations": []}), *_files(turn.attachments, site)],
    }


def _files(attachments: Iterable[NamedValue], site: str) -> Iterable[dict[str, Any]]:
    for named_value in attachments:
        if named_value.value.HasField("artifact"):
            artifact = named_value.value.artifact
            yield {"type": "input_file", "filename": artifact.name, "file_url": artifact_url(artifact, site)}

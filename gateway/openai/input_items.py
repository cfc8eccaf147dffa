"""What a response was asked, as OpenAI lists it."""

from collections.abc import Iterable
from typing import Any

from gateway.openai.ids import MESSAGE, named
from gateway.openai.links import address
from protos.hugginggpt.v1.artifact_pb2 import NamedValue
from protos.hugginggpt.v1.run_pb2 import ROLE_ASSISTANT, ROLE_USER, Run, Turn


def listed(run: Run, site: str) -> dict[str, Any]:
    """The messages of a run's spec, the last one first."""
    asked = Turn(role=ROLE_USER, text=run.spec.request, attachments=run.spec.inputs)
    items = [_item(run.run_id, number, turn, site) for number, turn in enumerate([*run.spec.history, asked])]
    items.reverse()
    return {
        "object": "list",
        "data": items,
        "first_id": items[0]["id"],
        "last_id": items[-1]["id"],
        "has_more": False,
    }


def _item(run_id: str, number: int, turn: Turn, site: str) -> dict[str, Any]:
    by_user = turn.role != ROLE_ASSISTANT
    words = {"type": "input_text" if by_user else "output_text", "text": turn.text}
    return {
        "id": f"{named(MESSAGE, run_id)}_{number}",
        "type": "message",
        "role": "user" if by_user else "assistant",
        "status": "completed",
        "content": [words | ({} if by_user else {"annotations": []}), *_files(turn.attachments, site)],
    }


def _files(attachments: Iterable[NamedValue], site: str) -> Iterable[dict[str, Any]]:
    for named_value in attachments:
        if named_value.value.HasField("artifact"):
            artifact = named_value.value.artifact
            yield {"type": "input_file", "filename": artifact.name, "file_url": address(artifact, site)}

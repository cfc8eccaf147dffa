"""What OpenAI's objects have no place for, in a field of our own that its clients pass on."""

from typing import Any

from gateway.json_encoder import encode, enum_names
from gateway.openai import links
from gateway.openai.event_rendering import Telling
from protos.hugginggpt.v1.run_pb2 import RunState

FIELD = "hugginggpt"

_STATES = enum_names(RunState.DESCRIPTOR)


def extras(telling: Telling) -> dict[str, Any]:
    """The run behind a completion or response: its id, how it ended, what it made."""
    run = telling.run
    artifacts = [
        {**encode(artifact), "url": links.address(artifact, telling.site)}
        for artifact in links.made(telling.tasks.values())
    ]
    failure = {"failure": encode(run.failure)} if telling.failure else {}
    return {
        "run_id": run.run_id,
        "conversation_id": run.conversation_id,
        "state": _STATES.get(run.state, "queued"),
        "artifacts": artifacts,
        **failure,
    }

"""The extension field of OpenAI objects, for data that they have no field for."""

from typing import Any

from gateway.json_encoder import encode, enum_names
from gateway.openai import links
from gateway.openai.event_rendering import EventRenderer
from protos.hugginggpt.v1.run_pb2 import RunState

FIELD = "hugginggpt"

_STATES = enum_names(RunState.DESCRIPTOR)


def extension_fields(renderer: EventRenderer) -> dict[str, Any]:
    """Id, state, artifacts and failure of the run of a completion or response."""
    run = renderer.run
    artifacts = [
        {**encode(artifact), "url": links.artifact_url(artifact, renderer.site)}
        for artifact in links.output_artifacts(run.tasks)
    ]
    failure = {"failure": encode(run.failure)} if renderer.failure else {}
    return {
        "run_id": run.run_id,
        "conversation_id": run.conversation_id,
        "state": _STATES.get(run.state, "queued"),
        "artifacts": artifacts,
        **failure,
    }

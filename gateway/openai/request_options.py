"""Options of OpenAI requests, stored in the run's metadata so that any gateway can render the run."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.core.validation import OPENAI_METADATA
from gateway.json_encoder import dumps
from protos.hugginggpt.v1.run_pb2 import RunSpec


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """How a run is rendered for its client."""

    model: str = "hugginggpt"
    projection: int = 1
    """Version of the projection that numbers the events."""
    instructed: bool = False
    """Whether the first turn of the history is the instructions."""
    form: Mapping[str, Any] = field(default_factory=lambda: {"type": "text"})
    """Response format as in the Responses API: text, json_object or json_schema."""
    background: bool = False
    store: bool = True
    metadata: Mapping[str, str] = field(default_factory=dict)

    def store_in(self, spec: RunSpec) -> None:
        """Writes the options to the metadata of a new run; RequestValidator rejects this key in client metadata."""
        stored = {name: getattr(self, name) for name in self.__slots__}
        spec.metadata[OPENAI_METADATA] = dumps(stored).decode()

    @classmethod
    def of(cls, spec: RunSpec) -> "RequestOptions":
        """Reads the options of a run; defaults for runs of other APIs."""
        try:
            stored = json.loads(spec.metadata.get(OPENAI_METADATA, "{}"))
            return cls(**stored) if isinstance(stored.get("form", {}), dict) else cls()
        except (ValueError, TypeError, AttributeError):  # written by another version
            return cls()

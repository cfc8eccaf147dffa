"""What OpenAI's clients ask of a run beyond its request: kept with the run, so that any gateway can tell it again."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.json_encoder import dumps
from protos.hugginggpt.v1.run_pb2 import RunSpec

NOTE = "openai"
"""Under which name it is kept in the run's metadata."""


@dataclass(frozen=True, slots=True)
class Terms:
    """How a run is told to its client."""

    model: str = "hugginggpt"
    projection: int = 1
    """By which version of the projection its events are numbered."""
    instructed: bool = False
    """The first turn of its history is the instructions."""
    form: Mapping[str, Any] = field(default_factory=lambda: {"type": "text"})
    """Of the answer, as the Responses API spells it: text, json_object or json_schema."""
    background: bool = False
    store: bool = True
    metadata: Mapping[str, str] = field(default_factory=dict)

    def note(self, spec: RunSpec) -> None:
        """Keeps them with a run that is to be; admission lets nobody else write there."""
        kept = {name: getattr(self, name) for name in self.__slots__}
        spec.metadata[NOTE] = dumps(kept).decode()

    @classmethod
    def of(cls, spec: RunSpec) -> "Terms":
        """Those of a run; of one that came in by another door, what they usually are."""
        try:
            kept = json.loads(spec.metadata.get(NOTE, "{}"))
            return cls(**kept) if isinstance(kept.get("form", {}), dict) else cls()
        except (ValueError, TypeError, AttributeError):  # of another version
            return cls()

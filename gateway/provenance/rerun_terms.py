"""What a run that does another one again keeps of that: which, and why it leaves out tasks of it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from gateway.provenance.digests import canonical
from protos.hugginggpt.v1.record_pb2 import VerificationOutcome
from protos.hugginggpt.v1.run_pb2 import RunSpec

NOTE = "verification"
"""Under which name it is kept in the run's metadata; admission lets nobody else write there."""


@dataclass(frozen=True)
class Hurdle:
    """Why a task is not done again."""

    outcome: "VerificationOutcome.ValueType"
    because: str


@dataclass(frozen=True)
class Terms:
    """Of a verification."""

    run_id: str
    """Of the run that is done again."""
    left_out: Mapping[int, Hurdle]
    """By task."""

    def note(self, spec: RunSpec) -> None:
        """Keeps them with a run that is to be."""
        left_out = {str(number): [hurdle.outcome, hurdle.because] for number, hurdle in self.left_out.items()}
        spec.metadata[NOTE] = canonical({"run_id": self.run_id, "left_out": left_out})

    @classmethod
    def of(cls, spec: RunSpec) -> "Terms | None":
        """Those of a run, if it is a verification."""
        if NOTE not in spec.metadata:
            return None
        kept = json.loads(spec.metadata[NOTE])
        left_out = {int(number): Hurdle(*hurdle) for number, hurdle in kept["left_out"].items()}
        return cls(kept["run_id"], left_out)

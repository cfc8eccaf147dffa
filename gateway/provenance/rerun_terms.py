"""Metadata of a rerun: the original run, and why some of its tasks are left out."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from gateway.provenance.digests import canonical
from protos.hugginggpt.v1.record_pb2 import VerificationOutcome
from protos.hugginggpt.v1.run_pb2 import RunSpec

NOTE = "verification"
"""Metadata key, reserved for the gateway."""


@dataclass(frozen=True)
class SkipReason:
    """Why a task is not rerun."""

    outcome: "VerificationOutcome.ValueType"
    message: str


@dataclass(frozen=True)
class RerunTerms:
    """What a rerun covers."""

    run_id: str
    """Id of the original run."""
    left_out: Mapping[int, SkipReason]
    """Skipped tasks by task id."""

    def write_to(self, spec: RunSpec) -> None:
        """Writes the terms to the metadata of the rerun's spec."""
        left_out = {
            str(number): [skip_reason.outcome, skip_reason.message] for number, skip_reason in self.left_out.items()
        }
        spec.metadata[NOTE] = canonical({"run_id": self.run_id, "left_out": left_out})

    @classmethod
    def read_from(cls, spec: RunSpec) -> "RerunTerms | None":
        """Reads the terms of a rerun; None if the run is not a rerun."""
        if NOTE not in spec.metadata:
            return None
        stored = json.loads(spec.metadata[NOTE])
        left_out = {int(number): SkipReason(*skip_reason) for number, skip_reason in stored["left_out"].items()}
        return cls(stored["run_id"], left_out)

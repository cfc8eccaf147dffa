"""What a job did."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Summary:
    """What a job did."""

    pipeline: str
    inputs: int
    skipped: int
    """Inputs whose results were up to date."""
    done: int = 0
    failed: int = 0
    seconds: float = 0.0
    is_stopped: bool = False
    """Whether it ended because of too many errors."""
    is_interrupted: bool = False
    models: Sequence[str] = ()
    task_seconds: dict[int, float] = field(default_factory=dict)
    """Computing time by task."""
    forecast: Mapping[str, float] | None = None
    """Of a trial run: seconds, and GPU hours, for all inputs that are not up to date."""

    @property
    def status(self) -> int:
        """Exit status: 0 if every input has a result, 130 after Ctrl-C, otherwise 1."""
        if self.is_interrupted:
            return 130
        return 1 if self.failed or self.is_stopped else 0

    def to_json(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "models": list(self.models),
            "inputs": self.inputs,
            "skipped": self.skipped,
            "done": self.done,
            "failed": self.failed,
            "seconds": round(self.seconds, 3),
            "task_seconds": {str(task): round(seconds, 3) for task, seconds in self.task_seconds.items()},
            "stopped": self.is_stopped,
            "interrupted": self.is_interrupted,
            **({"forecast": self.forecast} if self.forecast else {}),
        }

"""Recorded events of runs, as the gateway streams them: the same logs for every view of a run.

`python -m tests.support.event_logs` writes the Run object of each log next to it, for views that are not in Python.
"""

import json
from pathlib import Path
from typing import Any

from gateway.client import Event
from gateway.json_decoder import decode
from gateway.json_encoder import encode
from protos.hugginggpt.run_state import RunFold
from protos.hugginggpt.v1.event_pb2 import RunEvent

FOLDER = Path(__file__).parents[1] / "data" / "event_logs"
NAMES = sorted(path.stem for path in FOLDER.glob("*.jsonl"))


def event_log(name: str) -> list[Event]:
    """The events of a recorded run."""
    return [Event.of(json.loads(line)) for line in (FOLDER / f"{name}.jsonl").read_text("utf-8").splitlines()]


def folded_run(name: str) -> Any:
    """The Run object of a recorded run as JSON, folded by the orchestrator."""
    fold = RunFold()
    for event in event_log(name):
        fold.apply(decode(RunEvent, event.content))
    return encode(fold.snapshot())


def run_file(name: str) -> Path:
    """The file with the Run object of a recorded run."""
    return FOLDER / f"{name}.run.json"


if __name__ == "__main__":
    for each in NAMES:
        run_file(each).write_text(json.dumps(folded_run(each), ensure_ascii=False, indent=2) + "\n", "utf-8")

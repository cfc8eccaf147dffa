"""Recorded events of runs, as the gateway streams them: the same logs for every view of a run."""

import json
from pathlib import Path

from gateway.client import Event

FOLDER = Path(__file__).parents[1] / "data" / "event_logs"
NAMES = sorted(path.stem for path in FOLDER.glob("*.jsonl"))


def event_log(name: str) -> list[Event]:
    """The events of a recorded run."""
    return [Event.of(json.loads(line)) for line in (FOLDER / f"{name}.jsonl").read_text("utf-8").splitlines()]

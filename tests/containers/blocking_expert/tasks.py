import socket
from pathlib import Path
from threading import Event
from uuid import uuid4

from experts.host.handler import Handler, Inputs, Outputs, Parameters, single

FOLDER = Path("/calls")
"""Folder shared with the test: each call creates a file there with the expert's host name."""
RELEASED = FOLDER / "released"


def _block(inputs: Inputs, parameters: Parameters) -> Outputs:
    host, record = socket.gethostname(), FOLDER / uuid4().hex
    record.write_text(host)
    record.rename(record.with_suffix(".started"))
    while not RELEASED.exists():
        Event().wait(0.05)
    return {"text": f"{inputs['text']} by {host}"}


def blocking(model_id: str, device: str) -> Handler:
    return single(_block)


TASKS = {"blocking": blocking}

"""Sample inputs of tests/data, and calls of models without a server."""

from collections.abc import Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, cast

from experts.host.conversion import convert_outputs, output_ports
from experts.host.handler import Handler, Inputs, Media, Outputs
from experts.host.input_validation import ParameterReader
from experts.host.isolation import Configuration, running
from experts.lite.tasks import TASKS
from protos.hugginggpt.tasks import standard_tasks

DATA = Path(__file__).parents[1] / "data"

_TYPES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".heic": "image/heic",
    ".pdf": "application/pdf",
    ".wav": "audio/wav",
}


class RecordingCall:
    """A call without deadline that records the reported progress."""

    def __init__(self, *, cancelled: bool = False) -> None:
        self.cancelled = cancelled
        self.fractions: list[float] = []

    def progress(self, fraction: float, message: str = "") -> None:
        self.fractions.append(fraction)


def sample(name: str) -> Media:
    path = DATA / name
    return Media(path.read_bytes(), _TYPES[path.suffix], name)


@cache
def _worker_processes() -> ExitStack:
    """Uses worker processes until the tests end; otherwise the engines of cached models would end with any host."""
    stack = ExitStack()
    stack.enter_context(running(Configuration(), ahead=False))
    return stack


@cache
def load_lite_model(task: str, model_id: str) -> Handler:
    """Loads a model of the lite expert, once for all tests."""
    _worker_processes()
    return cast("Handler", TASKS[task](model_id, "cpu"))


def infer(
    handler: Handler, inputs: Inputs, parameters: Mapping[str, Any] | None = None, call: RecordingCall | None = None
) -> Outputs:
    """Executes the steps of one call as the host does."""
    (raw,) = handler.run([handler.prepare(inputs, parameters or {})], call or RecordingCall())
    return handler.finish(raw)


def run_lite_task(task: str, model_id: str, inputs: Inputs, parameters_json: str = "") -> Outputs:
    """Like infer, with parameters and outputs validated against the task's spec."""
    spec = standard_tasks()[task]
    outputs = infer(load_lite_model(task, model_id), inputs, ParameterReader(spec).read(parameters_json))
    convert_outputs(output_ports(spec), model_id, outputs)
    return outputs

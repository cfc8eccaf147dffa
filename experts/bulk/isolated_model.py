"""Models that are plain functions of files, in processes that can be killed and that load the model themselves.

An expert server keeps such a model in its own process, and sends each file to another process that decodes it: the
picture comes back, which takes longer than many models. Here the whole function runs where the file is decoded.
"""

from collections.abc import Sequence
from typing import Any

from experts.bulk.pipeline import ResolvedTask, package_of
from experts.host import load_context
from experts.host.devices import CPU
from experts.host.expert import Offer, read_expert
from experts.host.handler import (
    UNBATCHED,
    Batching,
    Call,
    Handler,
    Inputs,
    Media,
    Outputs,
    Parameters,
    RemoteHandler,
    Single,
)
from experts.host.input_validation import FILES
from experts.host.isolation import current_limits, engine_pool, run_in_pool
from experts.host.load_context import LoadContext
from experts.host.model_errors import is_out_of_memory
from services.common.errors import InvalidRequest

GROUP_ITEMS = 16
"""Items that a process runs in one call: each call costs a third of a millisecond."""


def load_isolated(task: ResolvedTask, offer: Offer, device: str) -> Handler | RemoteHandler:
    """Loads a model; into processes of its own, if it is a plain function that takes files.

    Args:
        task: the task.
        offer: the model.
        device: as of a loader.
    """
    handler = offer.loader(offer.card.id, device)
    ports = [port.name for port in offer.spec.inputs if port.modality in FILES]
    return IsolatedModel(task, ports[0]) if isinstance(handler, Single) and ports else handler


class IsolatedModel(Handler):
    """A plain function in worker processes that load it, called with several items at a time.

    If a process exceeds a limit or dies, the host runs the items again one by one, so that only one of them fails.

    Args:
        task: the task that it runs.
        port: input port of its file.
    """

    def __init__(self, task: ResolvedTask, port: str) -> None:
        self.batching = Batching(items=GROUP_ITEMS)
        self._port = port
        self._pool = engine_pool(_load, task, slow_seconds=current_limits().wall_seconds)

    def prepare(self, inputs: Inputs, parameters: Parameters) -> tuple[dict[str, Any], dict[str, Any]]:
        return dict(inputs), dict(parameters)

    def run(self, items: Sequence[tuple[Inputs, Parameters]], call: Call) -> list[Outputs | Exception]:  # noqa: ARG002  # use_call has it
        file = self._file(items[0][0]) if len(items) == 1 else f"one of {len(items)} files"
        try:
            return run_in_pool(self._pool, _run, list(items), file=file, port=self._port)
        except InvalidRequest:
            self.batching = UNBATCHED  # further items may be as slow
            raise

    def finish(self, raw: Outputs | Exception) -> Outputs:
        if isinstance(raw, Exception):
            raise raw
        return raw

    def _file(self, inputs: Inputs) -> str:
        media = inputs.get(self._port)
        return media.name if isinstance(media, Media) else self._port


# ------------------------------------------------------- in a worker process

_models: list[Single] = []
"""The model of this process."""


def _load(task: ResolvedTask) -> None:
    offer = read_expert(package_of(task.expert)).find(task.task, task.model)
    context = LoadContext(offer.card.revision, task=task.task, model_id=offer.card.id, device=CPU)
    with load_context.use(context):
        handler = offer.loader(offer.card.id, CPU)
    assert isinstance(handler, Single)  # noqa: S101  # as load_isolated has found
    _models.append(handler)


def _run(items: Sequence[tuple[Inputs, Parameters]]) -> list[Outputs | Exception]:
    """Returns the outputs or the error of each item."""
    outcomes: list[Outputs | Exception] = []
    for inputs, parameters in items:
        try:
            outcomes.append(_models[0].function(inputs, parameters))
        except Exception as error:  # reported as the item's
            if is_out_of_memory(error):
                raise
            outcomes.append(error.with_traceback(None))
    return outcomes

"""One call on its way through a server, and what every kind of server must do."""

import struct
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from experts.host.handler import Inputs, Outputs, Parameters
from experts.served.config import Model
from services.common.errors import CorruptData, ServiceError

NONSENSE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, struct.error)
"""What reading an answer may raise that is not as it should be."""


@dataclass(frozen=True)
class Asked:
    """One call."""

    model: Model
    task: str
    inputs: Inputs
    parameters: Parameters
    ready: Any
    """What is to be sent, as the server made it ready."""
    answer: Any = None


class Backend(Protocol):
    """A kind of server. Its errors are ServiceErrors."""

    def open(self) -> AbstractAsyncContextManager[None]:
        """Within the block it can be asked."""

    async def problems(self) -> Mapping[str, ServiceError]:
        """By name of the model what keeps it from answering; none: it is ready."""

    def prepare(self, model: Model, task: str, inputs: Inputs, parameters: Parameters) -> Asked:
        """Makes ready what is to be sent; on a thread."""

    async def ask(self, asked: Asked) -> Any:
        """Sends it."""

    def finish(self, asked: Asked) -> Outputs:
        """The answer as outputs; on a thread. May raise ValueError and the like if it makes no sense."""


def broken(model_name: str, server_name: str) -> CorruptData:
    what = f"{server_name} answered for {model_name} with something else than its task gives"
    return CorruptData(what, remedy="see that the configuration says what the model is, or take another")

"""Interface of a kind of server, and one call of it."""

import struct
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from experts.host.handler import Inputs, Outputs, Parameters
from experts.served.config import Model
from services.common.errors import CorruptData, ServiceError

REPLY_ERRORS = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, struct.error)
"""Errors that parsing a malformed answer may raise."""


@dataclass(frozen=True)
class ServedCall:
    """One call of a model on a server."""

    model: Model
    task: str
    inputs: Inputs
    parameters: Parameters
    request: Any
    """The request, as prepared by the backend."""
    answer: Any = None


class Backend(Protocol):
    """A kind of server. Its errors are ServiceErrors."""

    def open(self) -> AbstractAsyncContextManager[None]:
        """Allows calls within the block."""

    async def check_models(self) -> Mapping[str, ServiceError]:
        """Returns the error of each model that is not ready, by model name."""

    def prepare(self, model: Model, task: str, inputs: Inputs, parameters: Parameters) -> ServedCall:
        """Prepares the request; on a thread."""

    async def infer(self, call: ServedCall) -> Any:
        """Sends the request and returns the answer."""

    def finish(self, call: ServedCall) -> Outputs:
        """Converts the answer to outputs, on a thread; raises one of REPLY_ERRORS if it is malformed."""


def invalid_reply(model_name: str, server_name: str) -> CorruptData:
    message = f"the reply of {server_name} for {model_name} does not have the format of its task"
    return CorruptData(message, remedy="check the tasks of the model in the configuration, or use another model")

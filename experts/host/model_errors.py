"""Translates exceptions raised by models into service errors."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from services.common.errors import ModelFailed, OutOfMemory, ServiceError

log = structlog.get_logger(__name__)

_OUT_OF_MEMORY_MESSAGES = ("not enough memory", "can't allocate memory", "out of memory")
"""Parts of RuntimeError messages with which engines report a lack of memory."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of any engine means that memory ran out."""
    if isinstance(error, MemoryError | OutOfMemory) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(message in str(error) for message in _OUT_OF_MEMORY_MESSAGES)


@contextmanager
def translate_model_errors(model_id: str) -> Iterator[None]:
    """Raises OutOfMemory or ModelFailed for unexpected errors, as `to_service_error`."""
    try:
        yield
    except ServiceError:
        raise
    except Exception as error:
        raise to_service_error(error, model_id) from error


def to_service_error(error: Exception, model_id: str) -> ServiceError:
    """Returns OutOfMemory or ModelFailed for an unexpected error; neither that nor the log quotes the input."""
    if isinstance(error, ServiceError):
        return error
    if is_out_of_memory(error):
        return OutOfMemory(
            f"{model_id} ran out of memory", remedy="send a smaller input, or give the expert more memory"
        )
    where = traceback.format_tb(error.__traceback__)
    log.error("model failed", model=model_id, error=type(error).__name__, where=where)
    return ModelFailed(
        f"{model_id} failed on this input: {type(error).__name__}",
        remedy="try another input or another model; the log of the expert has the stack trace",
    )

"""What a model raised, as an expected failure."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from services.common.errors import ModelFailed, OutOfMemory, ServiceError

log = structlog.get_logger(__name__)

_NO_MEMORY = ("not enough memory", "can't allocate memory", "out of memory")
"""What engines say in errors that have no class of their own."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether there was too little memory, whichever engine says so."""
    if isinstance(error, MemoryError | OutOfMemory) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_MEMORY)


@contextmanager
def blaming(model_id: str) -> Iterator[None]:
    """Turns what is no expected failure into one that says nothing of the input, to the caller as to the log."""
    try:
        yield
    except ServiceError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise OutOfMemory(
                f"{model_id} ran out of memory", remedy="send a smaller input, or give the expert more memory"
            ) from None
        where = traceback.format_tb(error.__traceback__)
        log.error("model failed", model=model_id, error=type(error).__name__, where=where)  # noqa: TRY400  # the message may quote the input
        raise ModelFailed(
            f"{model_id} failed on this input: {type(error).__name__}",
            remedy="try another input or another model; the expert's log has the place",
        ) from error

"""Context of the model load in progress: revision, device, number type, and a progress callback for the loader."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace


def _ignore_progress(_fraction: float, _message: str) -> None:
    pass


@dataclass(frozen=True)
class LoadContext:
    """One load of one model."""

    revision: str = ""
    """Revision of the model card; empty allows any revision that is present."""
    progress: Callable[[float, str], None] = _ignore_progress
    """Reports progress, 0 to 1, and the current activity; callable from any thread."""
    task: str = ""
    model_id: str = ""
    device: str = ""
    """Never "auto"."""
    dtype: str = ""
    """"float32", "float16" or "bfloat16" if the operator or the card set one; empty leaves it to the engine."""
    batch_scale: float = 1.0
    """Factor of the limits of batches on the device (devices.batch_scale, unless the operator set one)."""
    attention: str = ""
    """Attention kernel (ComputeOptions.attention); empty leaves it to the engine."""
    tf32: bool | None = None
    """Whether to use TF32 (ComputeOptions.tf32); None leaves it to the engine."""
    fetch_only: bool = False
    """Only download the files: the loader raises FilesFetched when all are present, before it loads any of them."""


class FilesFetched(Exception):  # raised on success, too
    """All files that a model needs are on this machine."""


_NO_LOAD = LoadContext()
_current: ContextVar[LoadContext] = ContextVar("load_context", default=_NO_LOAD)


def current() -> LoadContext:
    """Returns the context of the load in progress; valid on the loader's thread until the loader returns."""
    return _current.get()


@contextmanager
def use(context: LoadContext) -> Iterator[None]:
    """Sets the context of loads within the block, and on threads that are started from it."""
    token = _current.set(context)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def use_revision(revision: str) -> Iterator[None]:
    """Sets the revision for a second model that the model being loaded depends on; empty allows any revision."""
    with use(replace(current(), revision=revision)):
        yield

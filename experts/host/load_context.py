"""What a loader may ask of the host beside the model's id and device: where and how, and whom to tell of progress."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


def _nobody(_fraction: float, _message: str) -> None:
    pass


@dataclass(frozen=True)
class Loading:
    """One load of one model."""

    revision: str = ""
    """The one on the model's card; empty means whichever is there."""
    progress: Callable[[float, str], None] = _nobody
    """Tells how far it is, 0 to 1, and at what; callable from any thread."""
    task: str = ""
    model_id: str = ""
    device: str = ""
    """Never "auto"."""
    dtype: str = ""
    """"float32", "float16" or "bfloat16" if the operator chose one for this model; empty leaves it to the engine."""
    fetching: bool = False
    """Only its files are wanted: the loader ends with Fetched once all are here, before it loads any of them."""


class Fetched(Exception):  # it is no error
    """All that a model needs is on this machine."""


_NOTHING = Loading()
_current: ContextVar[Loading] = ContextVar("loading", default=_NOTHING)


def current() -> Loading:
    """The load under way, as seen by the loader: on its own thread, and for as long as it runs."""
    return _current.get()


@contextmanager
def told(loading: Loading) -> Iterator[None]:
    """For the host: what is loaded inside the block, or on threads started from it, sees this."""
    token = _current.set(loading)
    try:
        yield
    finally:
        _current.reset(token)

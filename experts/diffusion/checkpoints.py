"""Checkpoints of pictures' makers: half the download on a GPU, and models that work together with another."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from experts.host import load_context
from experts.torch_host.checkpoint import Checkpoint

_HALF = "fp16"


def checkpoint_of(model_id: str, device: str) -> Checkpoint:
    """A pipeline's files; of weights those with 16 bits where they will have no more anyway.

    Raises:
        FailedPrecondition: LOAD_FAILED.
    """
    return Checkpoint.fetch(model_id, device, variant="" if device == "cpu" else _HALF)


@contextmanager
def at_commit(commit: str) -> Iterator[None]:
    """For a second model that the one being loaded works with: it has a commit of its own; empty means any."""
    with load_context.use(replace(load_context.current(), revision=commit)):
        yield


def assembled(checkpoint: Checkpoint, kind: Any, **options: Any) -> Any:
    """A pipeline of diffusers, or a component, from whichever variant of the weights is there.

    Raises:
        FailedPrecondition: LOAD_FAILED.
        OutOfMemory: it does not fit.
    """
    halves = any(checkpoint.folder.rglob(f"*.{_HALF}*.safetensors"))
    plain = any("." not in path.stem for path in checkpoint.folder.rglob("*.safetensors"))
    on_cpu = checkpoint.device.type == "cpu"
    variant = _HALF if halves and not (on_cpu and plain) else None
    made = checkpoint.pipeline(kind, variant=variant, **options)
    if hasattr(made, "set_progress_bar_config"):
        made.set_progress_bar_config(disable=True)
    return made

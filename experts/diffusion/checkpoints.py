"""Checkpoints of diffusers pipelines: 16-bit weights on a GPU, and second models with their own commit."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from experts.host import load_context
from experts.torch_host.checkpoint import Checkpoint

_HALF = "fp16"


def fetch_checkpoint(model_id: str, device: str) -> Checkpoint:
    """Fetches a pipeline's files; on a GPU the 16-bit weights, which are half the download.

    Raises:
        FailedPrecondition: LOAD_FAILED.
    """
    return Checkpoint.fetch(model_id, device, variant="" if device == "cpu" else _HALF)


@contextmanager
def use_commit(commit: str) -> Iterator[None]:
    """Sets the commit for a second model that the model being loaded depends on; empty selects any commit."""
    with load_context.use(replace(load_context.current(), revision=commit)):
        yield


def load_pipeline(checkpoint: Checkpoint, pipeline_class: Any, **options: Any) -> Any:
    """Loads a pipeline of diffusers, or a component, from the variant of the weights that is available.

    Raises:
        FailedPrecondition: LOAD_FAILED.
        OutOfMemory: the device has too little memory.
    """
    has_half = any(checkpoint.folder.rglob(f"*.{_HALF}*.safetensors"))
    has_full = any("." not in path.stem for path in checkpoint.folder.rglob("*.safetensors"))
    on_cpu = checkpoint.device.type == "cpu"
    variant = _HALF if has_half and not (on_cpu and has_full) else None
    pipeline = checkpoint.pipeline(pipeline_class, variant=variant, **options)
    if hasattr(pipeline, "set_progress_bar_config"):
        pipeline.set_progress_bar_config(disable=True)
    return pipeline

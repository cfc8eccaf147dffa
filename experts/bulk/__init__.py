"""Bulk mode: runs a stored pipeline over many files on Daft, in the worker processes themselves.

from experts.bulk import pipeline_frame

frame = pipeline_frame("read-aloud.yaml", daft.read_parquet("photos.parquet"))
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experts.bulk.frame import pipeline_frame
    from experts.bulk.ray_data import PipelineActor

os.environ.setdefault("DO_NOT_TRACK", "1")  # Daft reports its use to its makers unless this is set before its import

__all__ = ["PipelineActor", "pipeline_frame"]

_MODULES = {"PipelineActor": "ray_data", "pipeline_frame": "frame"}


def __getattr__(name: str) -> Any:
    """Imports a public name when it is used: a job whose results are up to date needs no engine."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)

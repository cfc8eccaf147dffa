"""Bulk mode: runs a stored pipeline over many files on Daft, in the worker processes themselves.

from experts.bulk import pipeline_frame

frame = pipeline_frame("read-aloud.yaml", daft.read_parquet("photos.parquet"))
"""

import os

os.environ.setdefault("DO_NOT_TRACK", "1")  # Daft reports its use to its makers unless this is set before its import

from experts.bulk.frame import pipeline_frame  # see above
from experts.bulk.ray_data import PipelineActor

__all__ = ["PipelineActor", "pipeline_frame"]

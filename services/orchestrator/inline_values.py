"""Checks of inline values: their size, and whether they are JSON."""

import json

from protos.hugginggpt.v1.artifact_pb2 import Value
from services.common.artifacts import INLINE_BYTES

_FRAMING_BYTES = 4
"""Bytes that a message adds to its one field of INLINE_BYTES."""


def is_too_large(value: Value) -> bool:
    """Whether a value must be an artifact: inline values are stored with each event and sent to all watchers."""
    return not value.HasField("artifact") and value.ByteSize() > INLINE_BYTES + _FRAMING_BYTES


def is_json(text: str) -> bool:
    """Whether a text is valid JSON."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True

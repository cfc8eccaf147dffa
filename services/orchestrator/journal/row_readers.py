"""Converts query results to Python objects."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

from protos.hugginggpt.v1.caller_pb2 import Caller
from protos.hugginggpt.v1.run_pb2 import Run
from services.common.database import Operation, Query, Steps
from services.orchestrator.journal.statements import FIELDS
from services.orchestrator.journal.tables import Row, StoredRun

T = TypeVar("T")
M = TypeVar("M", bound=Message)


def single_query(query: Query, result: Callable[[Any], T]) -> Operation[T]:
    """An operation of one query."""

    def operation() -> Steps[T]:
        return result((yield query))

    return operation


def decode(kind: type[M], content: bytes) -> M | None:
    """Decodes a stored message; None if its bytes are invalid."""
    try:
        return kind.FromString(content)
    except DecodeError:
        return None


def run_row(values: Sequence[Any]) -> Row:
    """Converts a row with the columns FIELDS."""
    fields = dict(zip(FIELDS, values, strict=True))
    caller = decode(Caller, fields["caller"])
    known = caller or Caller(tenant=fields["tenant"])  # an unspecified data policy counts as the strictest
    return Row(**{**fields, "caller": known}, is_readable=caller is not None)


def stored_run(values: Sequence[Any]) -> StoredRun:
    """Converts a row with the columns FIELDS and a snapshot."""
    *fields, snapshot = values
    return StoredRun(run_row(fields), decode(Run, snapshot) if snapshot else None)

"""What queries give, as Python has it."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

from protos.hugginggpt.v1.caller_pb2 import Caller
from services.common.database import Operation, Query, Steps
from services.orchestrator.journal.statements import FIELDS
from services.orchestrator.journal.tables import Row

T = TypeVar("T")
M = TypeVar("M", bound=Message)


def only(query: Query, result: Callable[[Any], T]) -> Operation[T]:
    """The operation of one query."""

    def operation() -> Steps[T]:
        return result((yield query))

    return operation


def decoded(kind: type[M], content: bytes) -> M | None:
    """A stored message; None if its bytes cannot be decoded."""
    try:
        return kind.FromString(content)
    except DecodeError:
        return None


def row(values: Sequence[Any]) -> Row:
    """A run, of the columns of FIELDS."""
    fields = dict(zip(FIELDS, values, strict=True))
    caller = decoded(Caller, fields["caller"])
    known = caller or Caller(tenant=fields["tenant"])  # its lack of a data policy counts as the strictest
    return Row(**{**fields, "caller": known}, is_readable=caller is not None)

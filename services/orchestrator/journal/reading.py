"""What queries give, as Python has it."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from protos.hugginggpt.v1.types_pb2 import Caller
from services.orchestrator.journal.statements import FIELDS
from services.orchestrator.journal.tables import Row
from services.runtime.database import Operation, Query, Steps

T = TypeVar("T")


def only(query: Query, result: Callable[[Any], T]) -> Operation[T]:
    """The operation of one query."""

    def operation() -> Steps[T]:
        return result((yield query))

    return operation


def row(values: Sequence[Any]) -> Row:
    """A run, of the columns of FIELDS."""
    fields = dict(zip(FIELDS, values, strict=True))
    return Row(**{**fields, "caller": Caller.FromString(fields["caller"])})

"""Parser of the gateway's server-sent events."""

import json
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from gateway.client.errors import NoGateway

T = TypeVar("T")

PROBLEM = "problem"


class Problem(Exception):
    """A permanent error that the gateway sent in a stream."""

    def __init__(self, content: dict[str, Any]) -> None:
        super().__init__()
        self.content = content


class Reader(Generic[T]):
    """Parses lines to events. Ignores comments, and incomplete events of a broken stream.

    Args:
        make: converts the JSON of an event.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._name, self._data = "", ""

    def take(self, line: str) -> T | None:
        """Parses a line; returns the event that it completes, if any.

        Raises:
            Problem: the gateway sent an error instead of an event.
            NoGateway: the data is not a valid event.
        """
        key, _, value = line.partition(":")
        if key == "event":
            self._name = value.strip()
        elif key == "data":
            self._data += value
        elif not line and self._data:
            name, data, self._name, self._data = self._name, self._data, "", ""
            return self._event(name, data)
        return None

    def _event(self, name: str, data: str) -> T:
        if name == PROBLEM:
            raise Problem(read(data, dict))
        return read(data, self._make)


def read(line: str, make: Callable[[Any], T]) -> T:
    """Parses a line of JSON.

    Raises:
        NoGateway: the JSON is invalid or has another type.
    """
    try:
        return make(json.loads(line))
    except (ValueError, LookupError, TypeError) as error:
        raise NoGateway(
            "received data that is not an event of a gateway", code="NO_GATEWAY", remedy="check the URL"
        ) from error

"""Server-sent events, as a gateway writes them."""

import json
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from gateway.client.errors import NoGateway

T = TypeVar("T")

PROBLEM = "problem"


class Problem(Exception):
    """The gateway cannot go on, and could not if it were asked again."""

    def __init__(self, content: dict[str, Any]) -> None:
        super().__init__()
        self.content = content


class Reader(Generic[T]):
    """Makes events of lines. Comments are skipped, and what a broken stream left half-said is never complete.

    Args:
        make: an event of its JSON.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._name, self._data = "", ""

    def take(self, line: str) -> T | None:
        """The event that this line completes, if it does.

        Raises:
            Problem: instead of an event.
            NoGateway: this is no such event.
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
    """What a line of JSON says.

    Raises:
        NoGateway: it says something else.
    """
    try:
        return make(json.loads(line))
    except (ValueError, LookupError, TypeError) as error:
        raise NoGateway("what came is no event of a gateway", code="NO_GATEWAY", remedy="check the URL") from error

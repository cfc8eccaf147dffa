"""Server-sent events, as a gateway writes them."""

import json
from typing import Any

from gateway.client.errors import NoGateway
from gateway.client.models import Event

PROBLEM = "problem"


class Problem(Exception):
    """The gateway cannot go on, and could not if it were asked again."""

    def __init__(self, content: dict[str, Any]) -> None:
        super().__init__()
        self.content = content


class Reader:
    """Makes events of lines. Comments are skipped, and what a broken stream left half-said is never complete."""

    def __init__(self) -> None:
        self._name, self._data = "", ""

    def take(self, line: str) -> Event | None:
        """The event that this line completes, if it does.

        Raises:
            Problem: instead of an event.
            NoGateway: this is no event of a run.
        """
        key, _, value = line.partition(":")
        if key == "event":
            self._name = value.strip()
        elif key == "data":
            self._data += value
        elif not line and self._data:
            name, data, self._name, self._data = self._name, self._data, "", ""
            return _event(name, data)
        return None


def _event(name: str, data: str) -> Event:
    try:
        content = json.loads(data)
        if name != PROBLEM:
            return Event.of(content)
    except (ValueError, LookupError, TypeError) as error:
        raise NoGateway("what came is no event of a run", code="NO_GATEWAY", remedy="check the URL") from error
    raise Problem(content)

"""Server-sent events, as a gateway writes them."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Event = Mapping[str, Any]
"""A RunEvent in JSON: one of its keys says what happened."""

PROBLEM = "problem"


def read(lines: Iterable[str]) -> Iterator[Event]:
    """The events of a run.

    Comments are skipped, and what a broken stream left half-said; a gateway that cannot go on says so in an event
    called problem, which ends the stream.
    """
    name, data = "", ""
    for line in lines:
        key, _, value = line.partition(":")
        if key == "event":
            name = value.strip()
        elif key == "data":
            data += value
        elif not line and name == PROBLEM:
            return
        elif not line and data:
            yield json.loads(data)
            name, data = "", ""

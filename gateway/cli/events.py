"""Server-sent events, as a gateway writes them."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Event = Mapping[str, Any]
"""A RunEvent in JSON: one of its keys says what happened."""


def read(lines: Iterable[str]) -> Iterator[Event]:
    """The data of each event; comments, and what a broken stream left half-said, are skipped."""
    data: list[str] = []
    for line in lines:
        name, _, value = line.partition(":")
        if name == "data":
            data.append(value.removeprefix(" "))
        elif not line and data:
            yield json.loads("\n".join(data))
            data.clear()

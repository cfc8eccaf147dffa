"""Pages of sorted lists. A page begins after the key of the last entry of the page before, even if that is gone."""

import base64
import binascii
import json
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TypeVar

from services.common.errors import InvalidRequest

Entry = TypeVar("Entry")
Key = tuple[str, ...]


def page(entries: Sequence[Entry], key: Callable[[Entry], Key], size: int, token: str) -> tuple[Sequence[Entry], str]:
    """A page and the token of the next; the token is empty on the last page.

    Args:
        entries: the whole list, sorted by key.
        key: identifies an entry.
        size: entries of a page; 0 means all.
        token: token returned with the page before; empty for the first page.

    Raises:
        InvalidRequest: the size is negative, or the token none of ours.
    """
    if size < 0:
        raise InvalidRequest("the page size is negative", remedy="give 0 for all, or a positive number")
    start = bisect_right(entries, _read(token), key=key) if token else 0
    found = entries[start : start + size] if size else entries[start:]
    is_last = start + len(found) == len(entries)
    return found, "" if is_last else _written(key(found[-1]))


def _written(key: Key) -> str:
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode()


def _read(token: str) -> Key:
    try:
        fields = json.loads(base64.urlsafe_b64decode(token.encode()))
    except (binascii.Error, ValueError):
        fields = None
    if isinstance(fields, list) and fields and all(isinstance(field, str) for field in fields):
        return tuple(fields)
    raise InvalidRequest("the page token is none of ours", remedy="begin again without one")

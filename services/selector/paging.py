"""Models page by page: a page begins after the last card of the one before, so that changes in between do no harm."""

import base64
import binascii
import json
from bisect import bisect_right
from collections.abc import Sequence

from protos.hugginggpt.v1.model_pb2 import ModelCard
from services.common.errors import InvalidRequest
from services.selector.catalog_view import place


def page(cards: Sequence[ModelCard], size: int, token: str) -> tuple[Sequence[ModelCard], str]:
    """A page and the token of the next; the token is empty on the last page.

    Args:
        cards: all of them, by place.
        size: at most so many; 0 means all.
        token: empty, or what came with the page before.

    Raises:
        InvalidRequest: the size is negative, or the token none of ours.
    """
    if size < 0:
        raise InvalidRequest("the page size is negative", remedy="give 0 for all, or a positive number")
    start = bisect_right(cards, _read(token), key=place) if token else 0
    found = cards[start : start + size] if size else cards[start:]
    is_last = start + len(found) == len(cards)
    return found, "" if is_last else _written(found[-1])


def _written(card: ModelCard) -> str:
    return base64.urlsafe_b64encode(json.dumps(place(card)).encode()).decode()


def _read(token: str) -> tuple[str, ...]:
    try:
        fields = json.loads(base64.urlsafe_b64decode(token.encode()))
    except (binascii.Error, ValueError):
        fields = None
    if isinstance(fields, list) and len(fields) == len(place(ModelCard())) and all(isinstance(f, str) for f in fields):
        return tuple(fields)
    raise InvalidRequest("the page token is none of ours", remedy="begin again without one")

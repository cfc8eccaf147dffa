"""Rows of different lengths as tensors, and many rows in few forward passes."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from experts.host.handler import Call

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
R = TypeVar("R")

Row = Mapping[str, Sequence[int]]
"""What a tokenizer gives for one text: input_ids, attention_mask and the like."""

_MOST = 16_384
"""Tokens in one forward pass, padding included."""


def padded(rows: Sequence[Row], pad_id: int, *, left: bool = False) -> dict[str, "torch.Tensor"]:
    """The rows as one batch; masks and types of padding are 0."""
    import torch

    length = max(len(row["input_ids"]) for row in rows)
    batch = {}
    for name in rows[0]:
        fill = pad_id if name == "input_ids" else 0
        batch[name] = torch.tensor([_stretched(row[name], length, fill, left=left) for row in rows])
    return batch


def in_passes(
    items: Sequence[Sequence[T]],
    length: Callable[[T], int],
    compute: Callable[[Sequence[T]], Sequence[R]],
    call: Call,
    *,
    most: int = _MOST,
    kind: Callable[[T], Hashable] = lambda _: None,
) -> list[list[R]]:
    """What compute gives for each piece of each item, computed in passes over pieces of like length and one kind.

    Nothing if meanwhile nobody waits any more: the host then asks for nothing either.
    """
    pieces = list(chain.from_iterable(items))
    results: list[R | None] = [None] * len(pieces)
    done = 0
    for places in _passes([length(piece) for piece in pieces], [kind(piece) for piece in pieces], most):
        if call.cancelled:
            return []
        for place, result in zip(places, compute([pieces[place] for place in places]), strict=True):
            results[place] = result
        done += len(places)
        if done < len(pieces):
            call.progress(done / len(pieces))
    taken: Iterator[Any] = iter(results)
    return [[next(taken) for _ in item] for item in items]


def _passes(lengths: Sequence[int], kinds: Sequence[Hashable], most: int) -> Iterator[list[int]]:
    """Places of pieces that go together, the longest first, so that what does not fit shows at once."""
    begun: dict[Hashable, list[int]] = {}
    for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        batch = begun.setdefault(kinds[place], [])
        if batch and lengths[batch[0]] * (len(batch) + 1) > most:
            yield batch
            batch = begun[kinds[place]] = []
        batch.append(place)
    yield from begun.values()


def _stretched(values: Sequence[int], length: int, fill: int, *, left: bool) -> list[int]:
    padding = [fill] * (length - len(values))
    return [*padding, *values] if left else [*values, *padding]

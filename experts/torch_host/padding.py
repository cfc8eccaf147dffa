"""Pads rows of different lengths to tensors, and computes many rows in few forward passes.

A GPU computes while the host does other work, until that needs a value: outputs are read after all passes.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Generic, TypeVar

from experts.host.handler import Call

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
R = TypeVar("R")
Output = TypeVar("Output")

Row = Mapping[str, Sequence[int]]
"""Output of a tokenizer for one text: input_ids, attention_mask and the like."""

MAX_PASS_TOKENS = 16_384
"""Maximum tokens in one forward pass, including padding, on a device with a batch scale of 1: their activations take
about 1 GB, at 64 KiB a token in a large encoder."""


def pad_rows(rows: Sequence[Row], pad_id: int, *, left: bool = False) -> dict[str, "torch.Tensor"]:
    """Pads rows to one batch; masks and token types of padding are 0."""
    import torch

    length = max(len(row["input_ids"]) for row in rows)
    batch = {}
    for name in rows[0]:
        fill = pad_id if name == "input_ids" else 0
        batch[name] = torch.tensor([_pad(row[name], length, fill, left=left) for row in rows])
    return batch


def run_in_passes(
    items: Sequence[Sequence[T]],
    length: Callable[[T], int],
    compute: Callable[[Sequence[T]], Sequence[R]],
    call: Call,
    *,
    max_tokens: int = MAX_PASS_TOKENS,
    kind: Callable[[T], Hashable] = lambda _: None,
) -> list[list[R]]:
    """Returns compute's result for each piece of each item, computed in passes over similar lengths of one kind.

    Returns an empty list if the call is cancelled meanwhile.
    """
    passes = launch_passes(items, length, compute, call, max_tokens=max_tokens, kind=kind)
    return passes.read(lambda _, results: results)


@dataclass(frozen=True)
class Passes(Generic[T, Output]):
    """Forward passes over the pieces of items, whose outputs may still be on their way to the host."""

    items: Sequence[Sequence[T]]
    outputs: Sequence[tuple[Sequence[int], Output]] | None
    """The output of each pass, with the indices of its pieces; None if the call was cancelled."""

    def read(self, read: Callable[[Sequence[T], Output], Sequence[R]]) -> list[list[R]]:
        """Returns the result for each piece of each item, as read from the pieces and the output of a pass."""
        if self.outputs is None:
            return []
        pieces = list(chain.from_iterable(self.items))
        results: dict[int, R] = {}
        for indices, output in self.outputs:
            results |= zip(indices, read([pieces[index] for index in indices], output), strict=True)
        in_order = (results[index] for index in range(len(pieces)))
        return [[next(in_order) for _ in item] for item in self.items]


def launch_passes(
    items: Sequence[Sequence[T]],
    length: Callable[[T], int],
    forward: Callable[[Sequence[T]], Output],
    call: Call,
    *,
    max_tokens: float = MAX_PASS_TOKENS,
    kind: Callable[[T], Hashable] = lambda _: None,
) -> Passes[T, Output]:
    """Computes each piece of each item in passes over similar lengths of one kind, without reading the outputs."""
    pieces = list(chain.from_iterable(items))
    outputs: list[tuple[Sequence[int], Output]] = []
    done = 0
    for indices in _group_into_passes(
        [length(piece) for piece in pieces], [kind(piece) for piece in pieces], max_tokens
    ):
        if call.cancelled:
            return Passes(items, None)
        outputs.append((indices, forward([pieces[index] for index in indices])))
        done += len(indices)
        if done < len(pieces):
            call.progress(done / len(pieces))
    return Passes(items, outputs)


def _group_into_passes(lengths: Sequence[int], kinds: Sequence[Hashable], max_tokens: float) -> Iterator[list[int]]:
    """Yields the indices of each pass, longest pieces first, so that a lack of memory shows early."""
    open_batches: dict[Hashable, list[int]] = {}
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        batch = open_batches.setdefault(kinds[index], [])
        if batch and lengths[batch[0]] * (len(batch) + 1) > max_tokens:
            yield batch
            batch = open_batches[kinds[index]] = []
        batch.append(index)
    yield from open_batches.values()


def _pad(values: Sequence[int], length: int, fill: int, *, left: bool) -> list[int]:
    padding = [fill] * (length - len(values))
    return [*padding, *values] if left else [*values, *padding]

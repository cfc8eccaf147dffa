"""Summaries made of the text's own sentences: those most like all the others, told once each."""

from collections import Counter
from typing import TYPE_CHECKING, Any

from experts.host.handler import Handler, Inputs, Outputs, Parameters, single
from experts.lite.sentences import Sentence, required, sentences, stems, words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float32]

_VOCABULARY = 2000
_DAMPING = 0.85
_ROUNDS = 30
_SHARE = 0.25
_LENGTHS = (25, 150)
_REPEATS = 0.6
_LEAD = 0.3


def summarization(_model_id: str, _device: str) -> Handler:
    """TextRank: a sentence counts as much as the sentences that resemble it."""
    import numpy as np  # noqa: F401  # so that the first call does not wait for it

    return single(_summarize)


def _summarize(inputs: Inputs, parameters: Parameters) -> Outputs:
    text = required(inputs["text"], "text")
    found = sentences(text)
    longest, shortest = _limits(parameters, len(words(text)))
    chosen = _chosen(found, longest, shortest)
    told = " ".join(found[index].text for index in sorted(chosen)).split()
    return {"text": " ".join(told[:longest]) + ("…" if len(told) > longest else "")}


def _limits(parameters: Parameters, length: int) -> tuple[int, int]:
    """In words: what was asked for, else about a quarter of the text."""
    shortest = int(parameters.get("min_length", 0))
    usual = min(max(round(length * _SHARE), _LENGTHS[0]), _LENGTHS[1])
    longest = int(parameters.get("max_length", max(usual, shortest)))
    return longest, min(shortest, longest)


def _chosen(found: list[Sentence], longest: int, shortest: int) -> set[int]:
    """Best first, skipping what says the same again, until the length is reached; always at least one."""
    vectors = _vectors(found)
    order = _ranks(vectors).argsort(kind="stable")[::-1].tolist()
    lengths = [len(words(sentence.text)) for sentence in found]
    chosen: list[int] = []
    for strict in (True, False):
        for index in order:
            total = sum(lengths[other] for other in chosen)
            if index in chosen or total + lengths[index] > longest or (not strict and total >= shortest):
                continue
            if not strict or not chosen or (vectors[chosen] @ vectors[index]).max() < _REPEATS:
                chosen.append(index)
    return set(chosen or order[:1])


def _vectors(found: list[Sentence]) -> "Matrix":
    """One row of unit length per sentence: its words, the rarer the heavier."""
    import numpy as np

    counts = [Counter(stems(sentence.text)) for sentence in found]
    spread = Counter(stem for count in counts for stem in count)
    column = {stem: place for place, (stem, _) in enumerate(spread.most_common(_VOCABULARY))}
    matrix = np.zeros((len(found), max(1, len(column))), dtype=np.float32)
    for row, count in enumerate(counts):
        for stem, times in count.items():
            if stem in column:
                matrix[row, column[stem]] = (1 + np.log(times)) * np.log(1 + len(found) / spread[stem])
    return _unit(matrix)


def _unit(matrix: Any) -> "Matrix":
    import numpy as np

    norms = np.linalg.norm(matrix, axis=1, keepdims=True)
    unit: Matrix = matrix / np.where(norms == 0, 1, norms)
    return unit


def _ranks(vectors: "Matrix") -> "NDArray[np.float64]":
    """PageRank over likeness, without ever writing down all pairs; early sentences weigh a little more."""
    import numpy as np

    count = len(vectors)
    prior = 1 + _LEAD / (1 + np.arange(count))
    prior /= prior.sum()
    degree = vectors @ vectors.sum(axis=0)
    degree = np.where(degree > 0, degree, 1)
    rank = prior.copy()
    for _ in range(_ROUNDS):
        rank = (1 - _DAMPING) * prior + _DAMPING * (vectors @ (vectors.T @ (rank / degree)))
        rank /= rank.sum()
    return rank

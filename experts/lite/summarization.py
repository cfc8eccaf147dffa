"""Extractive summarization: selects the most central sentences, without repetitions."""

import re
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
_LONG = 8
"""Minimum words of a line without final punctuation to count as a sentence."""
_ENDED = re.compile(r"[.!?…。！？][\"'”’»)\]」』）]*$")
_FURNITURE = re.compile(
    r"^[ \t]*(?:"
    r"(?:page|seite|p\.)[ \t]*\d+(?:[ \t]*(?:of|von|/)[ \t]*\d+)?|(?:[-–—]+[ \t]*)?\d{1,4}(?:[ \t]*[-–—]+)?"
    r"|(?:dear|hi|hello|hallo|hey|liebe[rs]?|sehr geehrte[rs]?|good (?:morning|afternoon|evening))\b[^\n]{0,40}[,:!]"
    r"|(?:(?:kind|best|warm|with)\b[^\n]{0,20})?(?:regards|wishes)|yours\b[^\n]{0,20}|sincerely|mit [\w ]{0,20}grüßen"
    r"|(?:from|to|cc|bcc|sent|date|subject|betreff|von|an|datum):[^\n]*"
    r"|--[ \t]*(?:\n[^\n]*){1,8}\Z"
    r")[ \t]*(?:,[ \t]*)?$",
    re.IGNORECASE | re.MULTILINE,
)
"""Lines that are not content: page numbers, greetings, headers and footers of e-mails."""


def summarization(_model_id: str, _device: str) -> Handler:
    """TextRank summarizer: the weight of a sentence is that of the sentences similar to it."""
    import numpy as np  # noqa: F401  # so that the first call does not wait for it

    return single(_summarize)


def _summarize(inputs: Inputs, parameters: Parameters) -> Outputs:
    text = required(inputs["text"], "text")
    found = _prose(sentences(_FURNITURE.sub("\n\n", text)) or sentences(text))
    longest, shortest = _limits(parameters, len(words(text)))
    chosen = _chosen(found, longest, shortest)
    selected = " ".join(found[index].text for index in sorted(chosen)).split()
    return {"text": " ".join(selected[:longest]) + ("…" if len(selected) > longest else "")}


def _prose(found: list[Sentence]) -> list[Sentence]:
    """Returns full sentences without letterheads, headings and rows of figures; all lines if few would remain."""
    ended = [
        one for one in found if _ENDED.search(one.text) or ("\n" not in one.text and len(words(one.text)) >= _LONG)
    ]
    said, whole = (sum(len(words(one.text)) for one in part) for part in (ended, found))
    return ended if said > whole / 2 else found


def _limits(parameters: Parameters, length: int) -> tuple[int, int]:
    """Returns the target length in words: as requested, or about a quarter of the text."""
    shortest = int(parameters.get("min_length", 0))
    usual = min(max(round(length * _SHARE), _LENGTHS[0]), _LENGTHS[1])
    longest = int(parameters.get("max_length", max(usual, shortest)))
    return longest, min(shortest, longest)


def _chosen(found: list[Sentence], longest: int, shortest: int) -> set[int]:
    """Selects sentences best first, without near-duplicates, up to the length; at least one."""
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
    """Returns one unit vector per sentence, with words weighted by rarity."""
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
    """PageRank over similarity, without a matrix of all pairs; early sentences weigh slightly more."""
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

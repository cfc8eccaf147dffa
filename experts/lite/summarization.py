"""Extractive summarization: selects the most central sentences, without repetitions."""

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from experts.host.handler import Handler, Inputs, Outputs, Parameters, single
from experts.lite.text_processing import Sentence, require_text, split_sentences, split_words, stem_words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float32]

_MAX_STEMS = 2000
_DAMPING = 0.85
_ITERATIONS = 30
_SUMMARY_SHARE = 0.25
_DEFAULT_LENGTH_RANGE = (25, 150)
_SHORT_SUMMARY = 45
"""Words of a summary, if the text has twice as many: a quarter of a short text does not say what it is about."""
_DUPLICATE_SIMILARITY = 0.6
_LEAD_BONUS = 0.3
_MIN_SENTENCE_WORDS = 8
"""Minimum words of a line without final punctuation to count as a sentence."""
_FINAL_PUNCTUATION = re.compile(r"[.!?…。！？][\"'”’»)\]」』）]*$")
_BOILERPLATE = re.compile(
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
    """Loads the TextRank summarizer, which weights a sentence by the weights of similar sentences."""
    import numpy as np  # noqa: F401  # imported here so that the first call does not wait

    return single(_summarize)


def _summarize(inputs: Inputs, parameters: Parameters) -> Outputs:
    text = require_text(inputs["text"], "text")
    sentences = _select_prose(split_sentences(_BOILERPLATE.sub("\n\n", text)) or split_sentences(text))
    longest, shortest = _target_lengths(parameters, len(split_words(text)))
    chosen = _select_sentences(sentences, longest, shortest)
    selected = " ".join(sentences[index].text for index in sorted(chosen)).split()
    return {"text": " ".join(selected[:longest]) + ("…" if len(selected) > longest else "")}


def _select_prose(sentences: list[Sentence]) -> list[Sentence]:
    """Returns full sentences without letterheads, headings and rows of figures; all lines if few would remain."""
    complete = [
        sentence
        for sentence in sentences
        if _FINAL_PUNCTUATION.search(sentence.text)
        or ("\n" not in sentence.text and len(split_words(sentence.text)) >= _MIN_SENTENCE_WORDS)
    ]
    prose_words, total_words = (
        sum(len(split_words(sentence.text)) for sentence in part) for part in (complete, sentences)
    )
    return complete if prose_words > total_words / 2 else sentences


def _target_lengths(parameters: Parameters, length: int) -> tuple[int, int]:
    """Returns the target length in words: as requested, or about a quarter of the text, half of a short one."""
    shortest = int(parameters.get("min_length", 0))
    least, most = _DEFAULT_LENGTH_RANGE
    default = min(max(round(length * _SUMMARY_SHARE), min(_SHORT_SUMMARY, length // 2), least), most)
    longest = int(parameters.get("max_length", max(default, shortest)))
    return longest, min(shortest, longest)


def _select_sentences(sentences: list[Sentence], longest: int, shortest: int) -> set[int]:
    """Selects sentences best first, without near-duplicates, up to the length; at least one."""
    vectors = _vectorize(sentences)
    order = _rank(vectors).argsort(kind="stable")[::-1].tolist()
    lengths = [len(split_words(sentence.text)) for sentence in sentences]
    chosen: list[int] = []
    for strict in (True, False):
        for index in order:
            total = sum(lengths[other] for other in chosen)
            if index in chosen or total + lengths[index] > longest or (not strict and total >= shortest):
                continue
            if not strict or not chosen or (vectors[chosen] @ vectors[index]).max() < _DUPLICATE_SIMILARITY:
                chosen.append(index)
    return set(chosen or order[:1])


def _vectorize(sentences: list[Sentence]) -> "Matrix":
    """Returns one unit vector per sentence, with words weighted by rarity."""
    import numpy as np

    counts = [Counter(stem_words(sentence.text)) for sentence in sentences]
    document_counts = Counter(stem for count in counts for stem in count)
    column = {stem: index for index, (stem, _) in enumerate(document_counts.most_common(_MAX_STEMS))}
    matrix = np.zeros((len(sentences), max(1, len(column))), dtype=np.float32)
    for row, count in enumerate(counts):
        for stem, occurrences in count.items():
            if stem in column:
                matrix[row, column[stem]] = (1 + np.log(occurrences)) * np.log(
                    1 + len(sentences) / document_counts[stem]
                )
    return _normalize(matrix)


def _normalize(matrix: Any) -> "Matrix":
    import numpy as np

    norms = np.linalg.norm(matrix, axis=1, keepdims=True)
    unit: Matrix = matrix / np.where(norms == 0, 1, norms)
    return unit


def _rank(vectors: "Matrix") -> "NDArray[np.float64]":
    """PageRank over similarity, without a matrix of all pairs; early sentences weigh slightly more."""
    import numpy as np

    count = len(vectors)
    prior = 1 + _LEAD_BONUS / (1 + np.arange(count))
    prior /= prior.sum()
    degree = vectors @ vectors.sum(axis=0)
    degree = np.where(degree > 0, degree, 1)
    rank = prior.copy()
    for _ in range(_ITERATIONS):
        rank = (1 - _DAMPING) * prior + _DAMPING * (vectors @ (vectors.T @ (rank / degree)))
        rank /= rank.sum()
    return rank

"""Text classification: sentiment (VADER) and language (py3langid)."""

from collections.abc import Callable, Iterable
from typing import Any

from experts.host.handler import Handler, Inputs, Outputs, Parameters, single
from experts.lite.language_detection import language_detector, load_language_names
from experts.lite.text_processing import require_text, split_sentences
from services.common.errors import InvalidRequest

_NEUTRAL_BELOW = 0.05
_CAUTION = 3
"""Power of the strength in the score: few polar words, or weak ones, tell little, as in irony or a polite letter."""
_UNDETERMINED_BELOW = 0.1
_FOREIGN_ABOVE = 0.9
_DEFAULT_LABEL_COUNT = 5
_CHUNK_CHARACTERS = 2000

Ranked = list[tuple[str, float]]


def text_classification(model_id: str, _device: str) -> Handler:
    """Loads the sentiment or the language classifier, by model id."""
    return {"vaderSentiment": _load_sentiment_classifier, "py3langid": _load_language_classifier}[model_id]()


def _load_sentiment_classifier() -> Handler:
    from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

    analyzer, detector = SentimentIntensityAnalyzer(), language_detector.get()

    def classify(inputs: Inputs, parameters: Parameters) -> Outputs:
        text = require_text(inputs["text"], "text")
        tag, probability = detector.rank(text)[0]
        if tag != "en" and probability > _FOREIGN_ABOVE:
            raise InvalidRequest(
                f"this model classifies only English text, and the text is in {load_language_names()[tag]}",
                remedy="translate the text to English, or choose a model that supports its language",
                port="text",
            )
        return _render_labels(score_sentiment(text, analyzer.polarity_scores), parameters)

    return single(classify)


def _load_language_classifier() -> Handler:
    detector = language_detector.get()

    def classify(inputs: Inputs, parameters: Parameters) -> Outputs:
        ranked = detector.rank(require_text(inputs["text"], "text"))
        if ranked[0][1] < _UNDETERMINED_BELOW:
            ranked.insert(0, ("und", 1 - ranked[0][1]))
        return _render_labels([(f"{load_language_names()[tag]} ({tag})", score) for tag, score in ranked], parameters)

    return single(classify)


def score_sentiment(text: str, polarity: Callable[[str], dict[str, float]]) -> Ranked:
    """Returns positive, neutral and negative, best first, as means over the sentences that are not neutral.

    If the lexicon contains no word of the text, or its sentences contradict each other, the result has a score of about
    0.5.
    """
    scores = [
        polarity(sentence.text[start : start + _CHUNK_CHARACTERS])
        for sentence in split_sentences(text)
        for start in range(0, len(sentence.text), _CHUNK_CHARACTERS)
    ]
    polar = [score["compound"] for score in scores if abs(score["compound"]) >= _NEUTRAL_BELOW]
    compound = sum(polar) / max(1, len(polar))
    is_mixed = bool(polar) and min(polar) < 0 < max(polar)
    has_known_words = any(score["pos"] or score["neg"] for score in scores) and not is_mixed
    strength = abs(compound)
    if strength < _NEUTRAL_BELOW:
        neutral = 1 - 0.5 * strength / _NEUTRAL_BELOW if has_known_words else 0.5
        winner = (1 - neutral) * (0.5 + 0.4 * strength / _NEUTRAL_BELOW)
    else:
        winner = 0.5 + 0.5 * ((strength - _NEUTRAL_BELOW) / (1 - _NEUTRAL_BELOW)) ** _CAUTION
        neutral = 0.9 * (1 - winner)
    polar_labels = ("positive", "negative") if compound >= 0 else ("negative", "positive")
    return sorted(
        [(polar_labels[0], winner), ("neutral", neutral), (polar_labels[1], 1 - winner - neutral)],
        key=lambda pair: -pair[1],
    )


def _render_labels(ranked: Iterable[tuple[str, float]], parameters: Parameters) -> Outputs:
    best = list(ranked)[: int(parameters.get("top_k", _DEFAULT_LABEL_COUNT))]
    labels: list[dict[str, Any]] = [{"label": label, "score": round(score, 4)} for label, score in best]
    return {"labels": labels, "text": labels[0]["label"]}

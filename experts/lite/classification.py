"""Text classification: sentiment (VADER) and language (py3langid)."""

from collections.abc import Callable, Iterable
from typing import Any

from experts.host.handler import Handler, Inputs, Outputs, Parameters, single
from experts.lite.language_detection import identifier, names
from experts.lite.sentences import required, sentences
from services.common.errors import InvalidRequest

_NEUTRAL_BELOW = 0.05
_UNDETERMINED_BELOW = 0.1
_FOREIGN_FROM = 0.9
_LABELS = 5
_PIECE = 2000

Ranked = list[tuple[str, float]]


def text_classification(model_id: str, _device: str) -> Handler:
    """Loads the sentiment or the language classifier, by model id."""
    return {"vaderSentiment": _sentiment, "py3langid": _language}[model_id]()


def _sentiment() -> Handler:
    from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

    analyzer, languages = SentimentIntensityAnalyzer(), identifier.get()

    def classify(inputs: Inputs, parameters: Parameters) -> Outputs:
        text = required(inputs["text"], "text")
        tag, probability = languages.rank(text)[0]
        if tag != "en" and probability > _FOREIGN_FROM:
            raise InvalidRequest(
                f"This model only knows the feelings in English, and the text is in {names()[tag]}.",
                remedy="Send it in English, or choose a model that knows the language.",
                port="text",
            )
        return _labels(feelings(text, analyzer.polarity_scores), parameters)

    return single(classify)


def _language() -> Handler:
    engine = identifier.get()

    def classify(inputs: Inputs, parameters: Parameters) -> Outputs:
        ranked = engine.rank(required(inputs["text"], "text"))
        if ranked[0][1] < _UNDETERMINED_BELOW:
            ranked.insert(0, ("und", 1 - ranked[0][1]))
        return _labels([(f"{names()[tag]} ({tag})", score) for tag, score in ranked], parameters)

    return single(classify)


def feelings(text: str, polarity: Callable[[str], dict[str, float]]) -> Ranked:
    """Returns positive, neutral and negative, best first, as means over sentences: sums over long texts are extreme.

    Where no word of the text is known there is nothing to go by, and the scores say so.
    """
    scores = [
        polarity(sentence.text[start : start + _PIECE])
        for sentence in sentences(text)
        for start in range(0, len(sentence.text), _PIECE)
    ]
    compound = sum(score["compound"] for score in scores) / max(1, len(scores))
    known = any(score["pos"] or score["neg"] for score in scores)
    strength = abs(compound)
    if strength < _NEUTRAL_BELOW:
        neutral = 1 - 0.5 * strength / _NEUTRAL_BELOW if known else 0.5
        winner = (1 - neutral) * (0.5 + 0.4 * strength / _NEUTRAL_BELOW)
    else:
        winner = 0.5 + 0.5 * (strength - _NEUTRAL_BELOW) / (1 - _NEUTRAL_BELOW)
        neutral = 0.9 * (1 - winner)
    ends = ("positive", "negative") if compound >= 0 else ("negative", "positive")
    return sorted([(ends[0], winner), ("neutral", neutral), (ends[1], 1 - winner - neutral)], key=lambda pair: -pair[1])


def _labels(ranked: Iterable[tuple[str, float]], parameters: Parameters) -> Outputs:
    best = list(ranked)[: int(parameters.get("top_k", _LABELS))]
    labels: list[dict[str, Any]] = [{"label": label, "score": round(score, 4)} for label, score in best]
    return {"labels": labels, "text": labels[0]["label"]}

"""What somebody said: results of speech recognition."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experts.host.handler import Outputs
from services.common.errors import ModelFailed

NO_SPEECH = "No speech found."


@dataclass(frozen=True)
class Said:
    """A stretch of speech."""

    text: str
    start: float
    end: float
    confidence: float
    """Mean probability of what it is made of."""


def written(said: Sequence[Said], details: Mapping[str, Any]) -> Outputs:
    """The outputs of automatic-speech-recognition.

    Raises:
        ModelFailed: a confidence is not finite.
    """
    weight = sum(len(one.text) for one in said)
    confidence = sum(one.confidence * len(one.text) for one in said) / max(1, weight)
    if not math.isfinite(confidence):
        raise ModelFailed("the model gave scores that are not finite", remedy="try another recording or model")
    segments = [
        {
            "text": one.text,
            "start": round(one.start, 3),
            "end": round(one.end, 3),
            "confidence": round(one.confidence, 4),
        }
        for one in said
    ]
    return {
        "text": " ".join(one.text for one in said) or NO_SPEECH,
        "segments": segments,
        "details": {"confidence": round(confidence, 4), **details},
    }

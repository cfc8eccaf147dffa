"""Results of speech recognition."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experts.host.handler import Outputs
from services.common.errors import ModelFailed

NO_SPEECH = "No speech found."


@dataclass(frozen=True)
class SpeechSegment:
    """Recognized text with its position in the recording, in seconds."""

    text: str
    start: float
    end: float
    confidence: float
    """Mean probability of its tokens or frames."""


def build_outputs(segments: Sequence[SpeechSegment], details: Mapping[str, Any]) -> Outputs:
    """Returns the outputs of automatic-speech-recognition.

    Raises:
        ModelFailed: a confidence is not finite.
    """
    weight = sum(len(segment.text) for segment in segments)
    confidence = sum(segment.confidence * len(segment.text) for segment in segments) / max(1, weight)
    if not math.isfinite(confidence):
        raise ModelFailed("the model's scores are not finite", remedy="try another recording or model")
    entries = [
        {
            "text": segment.text,
            "start": round(segment.start, 3),
            "end": round(segment.end, 3),
            "confidence": round(segment.confidence, 4),
        }
        for segment in segments
    ]
    return {
        "text": " ".join(segment.text for segment in segments) or NO_SPEECH,
        "segments": entries,
        "details": {"confidence": round(confidence, 4), **details},
    }

"""What the client's answers mean, as outputs of the tasks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from experts.endpoints import results
from experts.endpoints.media import recording
from experts.host.handler import Inputs, Outputs, Parameters
from experts.host.media import png
from services.common.errors import CorruptData


@dataclass(frozen=True)
class Made:
    """An answer, and what it is the answer to."""

    answer: Any
    inputs: Inputs
    parameters: Parameters
    model_id: str


def labels(made: Made) -> Outputs:
    return results.labels([(one.label, one.score) for one in made.answer], made.parameters.get("top_k"))


def entities(made: Made) -> Outputs:
    text = made.inputs["text"]
    found = [
        {"entity": one.entity_group or one.entity or "", "score": one.score, "start": one.start, "end": one.end}
        for one in made.answer
        if one.start is not None and one.end is not None
    ]
    return results.entities(found, text)


def answer(made: Made) -> Outputs:
    best = made.answer[0] if isinstance(made.answer, list) else made.answer
    return results.answer(best.answer, best.score, best.start, best.end)


def from_cells(made: Made) -> Outputs:
    cells, aggregator = [str(cell) for cell in made.answer.cells or ()], made.answer.aggregator or "NONE"
    details = {"answer": made.answer.answer, "cells": cells, "aggregator": aggregator}
    return {"text": made.answer.answer or "The table does not say.", "details": details}


def predictions(made: Made) -> Outputs:
    found = sorted(made.answer, key=lambda one: -one.score)
    written = [
        {"token": one.token_str.strip(), "score": round(one.score, results.DIGITS), "sequence": one.sequence}
        for one in found
    ]
    return {"predictions": written, "text": written[0]["token"]}


def vector(made: Made) -> Outputs:
    """Where there is one for each token, their mean."""
    vector = made.answer
    while vector.ndim > 1:
        vector = vector[0] if len(vector) == 1 else vector.mean(0)
    return results.embedding(vector.tolist())


def objects(made: Made) -> Outputs:
    found = [(one.label, one.score, (one.box.xmin, one.box.ymin, one.box.xmax, one.box.ymax)) for one in made.answer]
    return results.objects(found, made.inputs["image"])


def segments(made: Made) -> Outputs:
    found = [(one.label, 1.0 if one.score is None else one.score, one.mask) for one in made.answer]
    return results.segments(found, made.inputs["image"])


def answers(made: Made) -> Outputs:
    found = sorted(made.answer, key=lambda one: -one.score)[: made.parameters.get("top_k")]
    written = [{"answer": one.answer or "", "score": round(one.score, results.DIGITS)} for one in found]
    return {"text": written[0]["answer"], "answers": written}


def from_document(made: Made) -> Outputs:
    best = max(made.answer, key=lambda one: one.score)
    details = {"answer": best.answer, "score": round(best.score, results.DIGITS), "page": 1}
    return {"text": best.answer or "It does not say.", "details": details}


def drawn(made: Made) -> Outputs:
    return {"image": png(made.answer, "picture.png")}


def transcript(made: Made) -> Outputs:
    chunks = [chunk for chunk in made.answer.chunks or () if chunk.timestamp]
    segments = [
        {"text": chunk.text.strip(), "start": round(chunk.timestamp[0], 3), "end": round(chunk.timestamp[-1], 3)}
        for chunk in chunks
    ]
    text: dict[str, Any] = {"text": made.answer.text.strip() or "No speech found."}
    return text | ({"segments": segments} if segments else {})


def louder(made: Made) -> Outputs:
    if not made.answer:
        raise CorruptData(f"{made.model_id} gave no recording", remedy="take another model")
    return {"audio": recording(made.answer[0].blob, made.model_id, "recording")}


def said(field: str) -> Callable[[Made], Outputs]:
    return lambda made: {"text": (made.answer if isinstance(made.answer, str) else getattr(made.answer, field)).strip()}

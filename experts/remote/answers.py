"""Converts the answers of huggingface_hub's client to outputs of the tasks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from experts.endpoints import results
from experts.endpoints.media import recording
from experts.host.handler import Inputs, Outputs, Parameters
from experts.host.media import png
from services.common.errors import CorruptData


@dataclass(frozen=True)
class RemoteCall:
    """One call of a remote model and, once received, its answer."""

    answer: Any
    inputs: Inputs
    parameters: Parameters
    model_id: str


def labels(call: RemoteCall) -> Outputs:
    return results.labels([(one.label, one.score) for one in call.answer], call.parameters.get("top_k"))


def entities(call: RemoteCall) -> Outputs:
    text = call.inputs["text"]
    found = [
        {"entity": one.entity_group or one.entity or "", "score": one.score, "start": one.start, "end": one.end}
        for one in call.answer
        if one.start is not None and one.end is not None
    ]
    return results.entities(found, text)


def answer(call: RemoteCall) -> Outputs:
    best = call.answer[0] if isinstance(call.answer, list) else call.answer
    return results.answer(best.answer, best.score, best.start, best.end)


def from_cells(call: RemoteCall) -> Outputs:
    cells, aggregator = [str(cell) for cell in call.answer.cells or ()], call.answer.aggregator or "NONE"
    details = {"answer": call.answer.answer, "cells": cells, "aggregator": aggregator}
    return {"text": call.answer.answer or "The table does not say.", "details": details}


def predictions(call: RemoteCall) -> Outputs:
    found = sorted(call.answer, key=lambda one: -one.score)
    written = [
        {"token": one.token_str.strip(), "score": round(one.score, results.DIGITS), "sequence": one.sequence}
        for one in found
    ]
    return {"predictions": written, "text": written[0]["token"]}


def vector(call: RemoteCall) -> Outputs:
    """Returns the embedding; the mean of the vectors if there is one per token."""
    vector = call.answer
    while vector.ndim > 1:
        vector = vector[0] if len(vector) == 1 else vector.mean(0)
    return results.embedding(vector.tolist())


def objects(call: RemoteCall) -> Outputs:
    found = [(one.label, one.score, (one.box.xmin, one.box.ymin, one.box.xmax, one.box.ymax)) for one in call.answer]
    return results.objects(found, call.inputs["image"])


def segments(call: RemoteCall) -> Outputs:
    found = [(one.label, 1.0 if one.score is None else one.score, one.mask) for one in call.answer]
    return results.segments(found, call.inputs["image"])


def answers(call: RemoteCall) -> Outputs:
    found = sorted(call.answer, key=lambda one: -one.score)[: call.parameters.get("top_k")]
    written = [{"answer": one.answer or "", "score": round(one.score, results.DIGITS)} for one in found]
    return {"text": written[0]["answer"], "answers": written}


def from_document(call: RemoteCall) -> Outputs:
    best = max(call.answer, key=lambda one: one.score)
    details = {"answer": best.answer, "score": round(best.score, results.DIGITS), "page": 1}
    return {"text": best.answer or "It does not say.", "details": details}


def drawn(call: RemoteCall) -> Outputs:
    return {"image": png(call.answer, "picture.png")}


def transcript(call: RemoteCall) -> Outputs:
    chunks = [chunk for chunk in call.answer.chunks or () if chunk.timestamp]
    segments = [
        {"text": chunk.text.strip(), "start": round(chunk.timestamp[0], 3), "end": round(chunk.timestamp[-1], 3)}
        for chunk in chunks
    ]
    text: dict[str, Any] = {"text": call.answer.text.strip() or "No speech found."}
    return text | ({"segments": segments} if segments else {})


def louder(call: RemoteCall) -> Outputs:
    if not call.answer:
        raise CorruptData(f"{call.model_id} returned no audio", remedy="use another model")
    return {"audio": recording(call.answer[0].blob, call.model_id, "recording")}


def said(field: str) -> Callable[[RemoteCall], Outputs]:
    return lambda call: {"text": (call.answer if isinstance(call.answer, str) else getattr(call.answer, field)).strip()}

"""Converts the answers of huggingface_hub's client to outputs of the tasks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from experts.endpoints import results
from experts.endpoints.media import check_audio
from experts.host.handler import NO_ANSWER, Inputs, Outputs, Parameters
from experts.host.media import png
from services.common.errors import CorruptData


@dataclass(frozen=True)
class RemoteCall:
    """One call of a remote model and, once received, its answer."""

    answer: Any
    inputs: Inputs
    parameters: Parameters
    model_id: str


def convert_labels(call: RemoteCall) -> Outputs:
    return results.build_labels(
        [(prediction.label, prediction.score) for prediction in call.answer], call.parameters.get("top_k")
    )


def convert_entities(call: RemoteCall) -> Outputs:
    text = call.inputs["text"]
    entities = [
        {
            "entity": span.entity_group or span.entity or "",
            "score": span.score,
            "start": span.start,
            "end": span.end,
        }
        for span in call.answer
        if span.start is not None and span.end is not None
    ]
    return results.build_entities(entities, text)


def convert_answer(call: RemoteCall) -> Outputs:
    best = call.answer[0] if isinstance(call.answer, list) else call.answer
    return results.build_answer(best.answer, best.score, best.start, best.end)


def convert_table_answer(call: RemoteCall) -> Outputs:
    cells, aggregator = [str(cell) for cell in call.answer.cells or ()], call.answer.aggregator or "NONE"
    details = {"answer": call.answer.answer, "cells": cells, "aggregator": aggregator}
    return {"text": call.answer.answer or NO_ANSWER, "details": details}


def convert_predictions(call: RemoteCall) -> Outputs:
    ordered = sorted(call.answer, key=lambda prediction: -prediction.score)
    written = [
        {
            "token": prediction.token_str.strip(),
            "score": round(prediction.score, results.DIGITS),
            "sequence": prediction.sequence,
        }
        for prediction in ordered
    ]
    return {"predictions": written, "text": written[0]["token"]}


def convert_embedding(call: RemoteCall) -> Outputs:
    """Returns the embedding; the mean of the vectors if there is one per token."""
    vector = call.answer
    while vector.ndim > 1:
        vector = vector[0] if len(vector) == 1 else vector.mean(0)
    return results.build_embedding(vector.tolist())


def convert_objects(call: RemoteCall) -> Outputs:
    scored_boxes = [
        (
            detection.label,
            detection.score,
            (detection.box.xmin, detection.box.ymin, detection.box.xmax, detection.box.ymax),
        )
        for detection in call.answer
    ]
    return results.build_objects(scored_boxes, call.inputs["image"])


def convert_segments(call: RemoteCall) -> Outputs:
    scored_masks = [
        (segment.label, 1.0 if segment.score is None else segment.score, segment.mask) for segment in call.answer
    ]
    return results.build_segments(scored_masks, call.inputs["image"])


def convert_visual_answers(call: RemoteCall) -> Outputs:
    ordered = sorted(call.answer, key=lambda answer: -answer.score)[: call.parameters.get("top_k")]
    written = [{"answer": answer.answer or "", "score": round(answer.score, results.DIGITS)} for answer in ordered]
    return {"text": written[0]["answer"], "answers": written}


def convert_document_answer(call: RemoteCall) -> Outputs:
    best = max(call.answer, key=lambda answer: answer.score)
    details = {"answer": best.answer, "score": round(best.score, results.DIGITS), "page": 1}
    return {"text": best.answer or NO_ANSWER, "details": details}


def convert_image(call: RemoteCall) -> Outputs:
    return {"image": png(call.answer, "picture.png")}


def convert_transcript(call: RemoteCall) -> Outputs:
    chunks = [chunk for chunk in call.answer.chunks or () if chunk.timestamp]
    segments = [
        {"text": chunk.text.strip(), "start": round(chunk.timestamp[0], 3), "end": round(chunk.timestamp[-1], 3)}
        for chunk in chunks
    ]
    text: dict[str, Any] = {"text": call.answer.text.strip() or "No speech found."}
    return text | ({"segments": segments} if segments else {})


def convert_audio(call: RemoteCall) -> Outputs:
    if not call.answer:
        raise CorruptData(f"{call.model_id} returned no audio", remedy="use another model")
    return {"audio": check_audio(call.answer[0].blob, call.model_id, "recording")}


def text_converter(field: str) -> Callable[[RemoteCall], Outputs]:
    return lambda call: {"text": (call.answer if isinstance(call.answer, str) else getattr(call.answer, field)).strip()}

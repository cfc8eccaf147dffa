"""Prompts that run tasks on chat models, and parsers of the replies."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from experts.endpoints import results
from experts.endpoints.media import prepare_image, to_data_url
from experts.host.handler import NO_ANSWER, Inputs, Media, Outputs, Parameters
from experts.host.input_validation import read_candidate_labels
from services.common.errors import CorruptData, InvalidRequest

SENTIMENTS = ("positive", "negative", "neutral")
_REASONING = re.compile(r"^\s*<think>.*?</think>", re.DOTALL)
_DECODER = json.JSONDecoder()
_MAX_TABLE_CHARACTERS = 100_000
"""Maximum size of a table; a longer prompt exceeds the context of most models."""
_SCORE = 1.0
"""Score of entities and answers, for which a chat model gives no confidence."""


@dataclass(frozen=True)
class Prompt:
    """Messages and options of one chat completion."""

    system: str
    user: str
    picture: Media | None = None
    schema: Mapping[str, Any] | None = None
    """JSON Schema of the reply; None for text."""
    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages in OpenAI's format."""
        content: Any = self.user
        if self.picture:
            image = {"type": "image_url", "image_url": {"url": to_data_url(self.picture)}}
            content = [image, *([{"type": "text", "text": self.user}] if self.user else [])]
        return [{"role": "system", "content": self.system}, {"role": "user", "content": content}]


@dataclass(frozen=True)
class ChatTask:
    """How one task runs as a chat completion: its prompt, its parser, and the schema of its reply."""

    user: Callable[[Inputs, Parameters], str]
    read: Callable[[str, Inputs, Parameters], Outputs]
    schema: Callable[[Parameters], Mapping[str, Any]] | None = None


def build_prompt(task: str, inputs: Inputs, parameters: Parameters) -> Prompt:
    """Builds the prompt of a task.

    Raises:
        InvalidRequest: an input or parameter that prompts require is missing or unsuitable.
    """
    chat_task = CHAT_TASKS[task]
    user = chat_task.user(inputs, parameters)
    schema = chat_task.schema(parameters) if chat_task.schema else None
    system = load_system_prompts()[task]
    if schema:
        system += f"\nReply only with JSON that matches this schema: {json.dumps(schema)}"
    return Prompt(
        system,
        user,
        prepare_image(inputs["image"]) if "image" in inputs else None,
        schema,
        parameters.get("max_new_tokens"),
        parameters.get("temperature"),
        parameters.get("seed"),
    )


def parse_reply(task: str, reply: str, inputs: Inputs, parameters: Parameters) -> Outputs:
    """Parses a reply into the outputs of the task.

    Raises:
        CorruptData: it does not have the requested format.
    """
    text = strip_reasoning(reply)
    if not text:
        raise CorruptData("the model's reply is empty", remedy="try again, or use another model")
    try:
        return CHAT_TASKS[task].read(text, inputs, parameters)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise _wrong_format() from error


def strip_reasoning(reply: str) -> str:
    """Returns the reply without the reasoning before it."""
    return _REASONING.sub("", reply, count=1).strip()


def parse_object(reply: str) -> dict[str, Any]:
    """Returns the first JSON object in a reply, whatever text is around it.

    Raises:
        CorruptData: there is none.
    """
    text = strip_reasoning(reply)
    start = text.find("{")
    while start >= 0:
        try:
            value, _ = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            start = text.find("{", start + 1)
        else:
            return value  # type: ignore[no-any-return]  # it begins with a brace
    raise _wrong_format()


def _wrong_format() -> CorruptData:
    return CorruptData("the model's reply does not have the requested format", remedy="use another model")


@cache
def load_system_prompts() -> Mapping[str, str]:
    prompts: dict[str, str] = json.loads((files(__package__) / "prompts.json").read_text(encoding="utf-8"))
    return prompts


# ---------------------------------------------------------------- prompts


def _text_prompt(inputs: Inputs, _parameters: Parameters) -> str:
    return str(inputs["text"])


def _summary_prompt(inputs: Inputs, parameters: Parameters) -> str:
    max_words, min_words = parameters.get("max_length"), parameters.get("min_length")
    limits = [f"at most {max_words} words"] if max_words else []
    limits += [f"at least {min_words} words"] if min_words else []
    return f"{'In ' + ' and '.join(limits) + '. ' if limits else ''}The text:\n\n{inputs['text']}"


def _translation_prompt(inputs: Inputs, parameters: Parameters) -> str:
    source, target = parameters.get("source_language"), parameters.get("target_language") or "English"
    return f"{f'From {source} to' if source else 'Into'} {target}. The text:\n\n{inputs['text']}"


def _context_question_prompt(inputs: Inputs, _parameters: Parameters) -> str:
    return f"The context:\n\n{inputs['context']}\n\nThe question: {inputs['question']}"


def _table_question_prompt(inputs: Inputs, _parameters: Parameters) -> str:
    table: Media = inputs["table"]
    try:
        text = table.content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidRequest(
            f"{table.name} is not CSV or JSON text", port="table", remedy="save the table as CSV in UTF-8"
        ) from None
    if len(text) > _MAX_TABLE_CHARACTERS:
        raise InvalidRequest(f"{table.name} is too long for a prompt", port="table", remedy="send only relevant rows")
    return f"The table:\n\n{text}\n\nThe question: {inputs['question']}"


def _label_prompt(inputs: Inputs, parameters: Parameters) -> str:
    fits = "Several may fit" if parameters.get("multi_label") else "Exactly one fits: the probabilities add up to 1"
    return f"The labels: {json.dumps(read_candidate_labels(parameters))}. {fits}. The text:\n\n{inputs['text']}"


def _question_prompt(inputs: Inputs, _parameters: Parameters) -> str:
    return str(inputs["question"])


def _empty_prompt(_inputs: Inputs, _parameters: Parameters) -> str:
    return ""


# ---------------------------------------------------------------- schemas of replies

_STRING = {"type": "string"}


def _object_schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _score_schema(names: Sequence[str]) -> dict[str, Any]:
    return _object_schema(**{name: {"type": "number"} for name in names})


_ANSWER = _object_schema(answer=_STRING)
_CELLS = _object_schema(answer=_STRING, cells={"type": "array", "items": _STRING})
_ENTITY = _object_schema(text=_STRING, entity={"type": "string", "enum": ["PER", "ORG", "LOC", "MISC"]})
_ENTITIES = _object_schema(entities={"type": "array", "items": _ENTITY})


# ---------------------------------------------------------------- outputs


def _parse_text(reply: str, _inputs: Inputs, _parameters: Parameters) -> Outputs:
    return {"text": reply}


def _parse_visual_answer(reply: str, _inputs: Inputs, _parameters: Parameters) -> Outputs:
    return {"text": reply, "answers": [{"answer": reply, "score": _SCORE}]}


def _parse_context_answer(reply: str, inputs: Inputs, _parameters: Parameters) -> Outputs:
    text, context = parse_object(reply)["answer"].strip(), inputs["context"]
    start = context.find(text) if text else 0
    if start < 0:
        raise ValueError("the answer is not in the context")
    return results.build_answer(text, _SCORE if text else 0.0, start, start + len(text))


def _parse_table_answer(reply: str, _inputs: Inputs, _parameters: Parameters) -> Outputs:
    value = parse_object(reply)
    answer, cells = value["answer"].strip(), [str(cell) for cell in value["cells"]]
    details = {"answer": answer, "cells": cells, "aggregator": "NONE"}
    return {"text": answer or NO_ANSWER, "details": details}


def _parse_document_answer(reply: str, _inputs: Inputs, _parameters: Parameters) -> Outputs:
    answer = parse_object(reply)["answer"].strip()
    details = {"answer": answer, "score": _SCORE if answer else 0.0, "page": 1}
    return {"text": answer or NO_ANSWER, "details": details}


def _parse_scores(names: Sequence[str], reply: str) -> list[tuple[str, float]]:
    value = parse_object(reply)
    return [(name, min(max(float(value[name]), 0.0), 1.0)) for name in names]


def _parse_sentiment(reply: str, _inputs: Inputs, parameters: Parameters) -> Outputs:
    return results.build_labels(_parse_scores(SENTIMENTS, reply), parameters.get("top_k"))


def _parse_candidate_labels(reply: str, _inputs: Inputs, parameters: Parameters) -> Outputs:
    return results.build_labels(_parse_scores(read_candidate_labels(parameters), reply))


def _parse_entities(reply: str, inputs: Inputs, _parameters: Parameters) -> Outputs:
    return results.build_entities(_locate_entities(parse_object(reply)["entities"], inputs["text"]), inputs["text"])


def _locate_entities(entities: Sequence[Mapping[str, str]], text: str) -> Iterator[Mapping[str, Any]]:
    """Yields the entities that occur in the text, each at its next occurrence."""
    next_start: dict[str, int] = {}
    for entity in entities:
        start = text.find(entity["text"], next_start.get(entity["text"], 0)) if entity["text"] else -1
        if start >= 0:
            next_start[entity["text"]] = end = start + len(entity["text"])
            yield {"entity": entity["entity"], "score": _SCORE, "start": start, "end": end}


CHAT_TASKS: Mapping[str, ChatTask] = {
    "summarization": ChatTask(_summary_prompt, _parse_text),
    "translation": ChatTask(_translation_prompt, _parse_text),
    "text-generation": ChatTask(_text_prompt, _parse_text),
    "text2text-generation": ChatTask(_text_prompt, _parse_text),
    "conversational": ChatTask(_text_prompt, _parse_text),
    "question-answering": ChatTask(_context_question_prompt, _parse_context_answer, lambda _: _ANSWER),
    "table-question-answering": ChatTask(_table_question_prompt, _parse_table_answer, lambda _: _CELLS),
    "text-classification": ChatTask(_text_prompt, _parse_sentiment, lambda _: _score_schema(SENTIMENTS)),
    "zero-shot-classification": ChatTask(
        _label_prompt, _parse_candidate_labels, lambda parameters: _score_schema(read_candidate_labels(parameters))
    ),
    "token-classification": ChatTask(_text_prompt, _parse_entities, lambda _: _ENTITIES),
    "image-to-text": ChatTask(_empty_prompt, _parse_text),
    "visual-question-answering": ChatTask(_question_prompt, _parse_visual_answer),
    "document-question-answering": ChatTask(_question_prompt, _parse_document_answer, lambda _: _ANSWER),
}

VISION_TASKS = frozenset({"image-to-text", "visual-question-answering", "document-question-answering"})
"""Tasks that need a model with vision."""

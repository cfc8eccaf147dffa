"""Tasks as a model that chats is asked them, and its replies as results."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from experts.endpoints import results
from experts.endpoints.media import data_url, sendable
from experts.host.handler import Inputs, Media, Outputs, Parameters
from experts.host.parameters import port_of
from services.common.errors import CorruptData, InvalidRequest

NO_ANSWER = {"table-question-answering": "The table does not say.", "document-question-answering": "It does not say."}
SENTIMENTS = ("positive", "negative", "neutral")
_OBJECT = re.compile(r"\{.*\}", re.DOTALL)
_THOUGHT = re.compile(r"^\s*<think>.*?</think>", re.DOTALL)
_MOST_TABLE = 100_000
"""Characters of a table; more is too long a prompt for most models."""
_SURE = 1.0
"""A model that chats does not say how sure it is of names and answers."""


@dataclass(frozen=True)
class Prompt:
    """What is sent."""

    system: str
    user: str
    picture: Media | None = None
    schema: Mapping[str, Any] | None = None
    """Of the reply, where it must be JSON."""
    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None

    @property
    def messages(self) -> list[dict[str, Any]]:
        """In OpenAI's form."""
        content: Any = self.user
        if self.picture:
            shown = {"type": "image_url", "image_url": {"url": data_url(self.picture)}}
            content = [shown, *([{"type": "text", "text": self.user}] if self.user else [])]
        return [{"role": "system", "content": self.system}, {"role": "user", "content": content}]


@dataclass(frozen=True)
class Chatted:
    """One task as a chat."""

    user: Callable[[Inputs, Parameters], str]
    read: Callable[[str, Inputs, Parameters], Outputs]
    schema: Callable[[Parameters], Mapping[str, Any]] | None = None


def asked(task: str, inputs: Inputs, parameters: Parameters) -> Prompt:
    """The prompt for a task.

    Raises:
        InvalidRequest: something is missing that only prompts need.
    """
    chatted = CHATS[task]
    user = chatted.user(inputs, parameters)
    schema = chatted.schema(parameters) if chatted.schema else None
    system = _systems()[task]
    if schema:
        system += f"\nReply with JSON alone, that fits this schema: {json.dumps(schema)}"
    return Prompt(
        system,
        user,
        sendable(inputs["image"]) if "image" in inputs else None,
        schema,
        parameters.get("max_new_tokens"),
        parameters.get("temperature"),
        parameters.get("seed"),
    )


def read(task: str, reply: str, inputs: Inputs, parameters: Parameters) -> Outputs:
    """The reply as outputs of the task.

    Raises:
        CorruptData: it makes no sense.
    """
    text = _THOUGHT.sub("", reply, count=1).strip()
    if not text:
        raise CorruptData("the model replied with nothing", remedy="try again, or take another model")
    try:
        return CHATS[task].read(text, inputs, parameters)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise CorruptData("the model's reply is not what was asked for", remedy="take another model") from error


@cache
def _systems() -> Mapping[str, str]:
    prompts: dict[str, str] = json.loads((files(__package__) / "prompts.json").read_text(encoding="utf-8"))
    return prompts


# ---------------------------------------------------------------- what is asked


def _text(inputs: Inputs, _parameters: Parameters) -> str:
    return str(inputs["text"])


def _summarised(inputs: Inputs, parameters: Parameters) -> str:
    longest, shortest = parameters.get("max_length"), parameters.get("min_length")
    limits = [f"at most {longest} words"] if longest else []
    limits += [f"at least {shortest} words"] if shortest else []
    return f"{'In ' + ' and '.join(limits) + '. ' if limits else ''}The text:\n\n{inputs['text']}"


def _translated(inputs: Inputs, parameters: Parameters) -> str:
    source, target = parameters.get("source_language"), parameters.get("target_language") or "English"
    return f"{f'From {source} to' if source else 'Into'} {target}. The text:\n\n{inputs['text']}"


def _asked_of_context(inputs: Inputs, _parameters: Parameters) -> str:
    return f"The context:\n\n{inputs['context']}\n\nThe question: {inputs['question']}"


def _asked_of_table(inputs: Inputs, _parameters: Parameters) -> str:
    table: Media = inputs["table"]
    try:
        text = table.content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidRequest(
            f"{table.name} is no CSV or JSON text", port="table", remedy="save the table as CSV in UTF-8"
        ) from None
    if len(text) > _MOST_TABLE:
        raise InvalidRequest(
            f"{table.name} is too long for a prompt", port="table", remedy="send the rows that matter alone"
        )
    return f"The table:\n\n{text}\n\nThe question: {inputs['question']}"


def _labelled(inputs: Inputs, parameters: Parameters) -> str:
    fits = "Several may fit" if parameters.get("multi_label") else "One fits; together they make 1"
    return f"The labels: {json.dumps(candidates(parameters))}. {fits}. The text:\n\n{inputs['text']}"


def candidates(parameters: Parameters) -> list[str]:
    """The labels to choose from.

    Raises:
        InvalidRequest: there are none.
    """
    named = list(dict.fromkeys(label.strip() for label in parameters.get("candidate_labels", ())))
    if not named or not all(named):
        raise InvalidRequest(
            "the parameter candidate_labels is missing: the labels to choose from",
            port=port_of("candidate_labels"),
            remedy='give it, such as ["sports", "politics"]',
        )
    return named


def _question(inputs: Inputs, _parameters: Parameters) -> str:
    return str(inputs["question"])


def _nothing(_inputs: Inputs, _parameters: Parameters) -> str:
    return ""


# ---------------------------------------------------------------- what the reply must be

_STRING = {"type": "string"}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _scores(names: Sequence[str]) -> dict[str, Any]:
    return _object(**{name: {"type": "number"} for name in names})


_ANSWER = _object(answer=_STRING)
_CELLS = _object(answer=_STRING, cells={"type": "array", "items": _STRING})
_ENTITY = _object(text=_STRING, entity={"type": "string", "enum": ["PER", "ORG", "LOC", "MISC"]})
_ENTITIES = _object(entities={"type": "array", "items": _ENTITY})


# ---------------------------------------------------------------- what is made of it


def _said(reply: str, _inputs: Inputs, _parameters: Parameters) -> Outputs:
    return {"text": reply}


def _seen(reply: str, _inputs: Inputs, _parameters: Parameters) -> Outputs:
    return {"text": reply, "answers": [{"answer": reply, "score": _SURE}]}


def _json(reply: str) -> dict[str, Any]:
    found = _OBJECT.search(reply)
    value = json.loads(found[0]) if found else None
    if not isinstance(value, dict):
        raise TypeError("no JSON object")
    return value


def _quoted(reply: str, inputs: Inputs, _parameters: Parameters) -> Outputs:
    text, context = _json(reply)["answer"].strip(), inputs["context"]
    start = context.find(text) if text else 0
    if start < 0:
        raise ValueError("not a stretch of the context")
    return results.answer(text, _SURE if text else 0.0, start, start + len(text))


def _from_cells(reply: str, _inputs: Inputs, _parameters: Parameters) -> Outputs:
    value = _json(reply)
    answer, cells = value["answer"].strip(), [str(cell) for cell in value["cells"]]
    details = {"answer": answer, "cells": cells, "aggregator": "NONE"}
    return {"text": answer or NO_ANSWER["table-question-answering"], "details": details}


def _from_document(reply: str, _inputs: Inputs, _parameters: Parameters) -> Outputs:
    answer = _json(reply)["answer"].strip()
    details = {"answer": answer, "score": _SURE if answer else 0.0, "page": 1}
    return {"text": answer or NO_ANSWER["document-question-answering"], "details": details}


def _scored(names: Sequence[str], reply: str) -> list[tuple[str, float]]:
    value = _json(reply)
    return [(name, min(max(float(value[name]), 0.0), 1.0)) for name in names]


def _sentiment(reply: str, _inputs: Inputs, parameters: Parameters) -> Outputs:
    return results.labels(_scored(SENTIMENTS, reply), parameters.get("top_k"))


def _chosen(reply: str, _inputs: Inputs, parameters: Parameters) -> Outputs:
    return results.labels(_scored(candidates(parameters), reply))


def _named(reply: str, inputs: Inputs, _parameters: Parameters) -> Outputs:
    return results.entities(_placed(_json(reply)["entities"], inputs["text"]), inputs["text"])


def _placed(named: Sequence[Mapping[str, str]], text: str) -> Iterator[Mapping[str, Any]]:
    """The names that do stand in the text, each where it stands next."""
    after: dict[str, int] = {}
    for one in named:
        start = text.find(one["text"], after.get(one["text"], 0)) if one["text"] else -1
        if start >= 0:
            after[one["text"]] = end = start + len(one["text"])
            yield {"entity": one["entity"], "score": _SURE, "start": start, "end": end}


CHATS: Mapping[str, Chatted] = {
    "summarization": Chatted(_summarised, _said),
    "translation": Chatted(_translated, _said),
    "text-generation": Chatted(_text, _said),
    "text2text-generation": Chatted(_text, _said),
    "conversational": Chatted(_text, _said),
    "question-answering": Chatted(_asked_of_context, _quoted, lambda _: _ANSWER),
    "table-question-answering": Chatted(_asked_of_table, _from_cells, lambda _: _CELLS),
    "text-classification": Chatted(_text, _sentiment, lambda _: _scores(SENTIMENTS)),
    "zero-shot-classification": Chatted(_labelled, _chosen, lambda parameters: _scores(candidates(parameters))),
    "token-classification": Chatted(_text, _named, lambda _: _ENTITIES),
    "image-to-text": Chatted(_nothing, _said),
    "visual-question-answering": Chatted(_question, _seen),
    "document-question-answering": Chatted(_question, _from_document, lambda _: _ANSWER),
}

SEEING = frozenset({"image-to-text", "visual-question-answering", "document-question-answering"})
"""Those that need a model that sees."""

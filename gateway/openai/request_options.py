"""Options of OpenAI requests: response formats, unsupported parameters, and what is stored with the run."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.core.validation import MAX_STOPS, OPENAI_METADATA
from gateway.json_encoder import dumps
from gateway.json_text import canonical, checked_text, refuse
from gateway.openai.request_body import Fields
from protos.hugginggpt.v1.run_pb2 import AnswerOptions, RunSpec
from services.common import json_schema
from services.common.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """How a run is rendered for its client."""

    model: str = "hugginggpt"
    projection: int = 1
    """Version of the projection that numbers the events."""
    instructed: bool = False
    """Whether the first turn of the history is the instructions."""
    form: Mapping[str, Any] = field(default_factory=lambda: {"type": "text"})
    """Response format as in the Responses API: text, json_object or json_schema."""
    background: bool = False
    store: bool = True
    metadata: Mapping[str, str] = field(default_factory=dict)

    def store_in(self, spec: RunSpec) -> None:
        """Writes the options to the metadata of a new run; RequestValidator rejects this key in client metadata."""
        stored = {name: getattr(self, name) for name in self.__slots__}
        spec.metadata[OPENAI_METADATA] = dumps(stored).decode()

    @classmethod
    def of(cls, spec: RunSpec) -> "RequestOptions":
        """Reads the options of a run; defaults for runs of other APIs."""
        try:
            stored = json.loads(spec.metadata.get(OPENAI_METADATA, "{}"))
            return cls(**stored) if isinstance(stored.get("form", {}), dict) else cls()
        except (ValueError, TypeError, AttributeError):  # written by another version
            return cls()


METADATA_ENTRIES, METADATA_KEY, METADATA_VALUE = 16, 64, 512
"""Limits of a request's metadata: entries, and characters of keys and values."""

TEXT: Mapping[str, Any] = {"type": "text"}


def chat_format(sent: Fields) -> Mapping[str, Any]:
    """Reads the response format of a chat completion, in the notation of the Responses API.

    Raises:
        InvalidRequest: the format is unknown, or its schema is not supported.
    """
    requested = sent.map("response_format")
    return _form(requested, requested.map("json_schema"))


def response_format(sent: Fields) -> Mapping[str, Any]:
    """Reads the response format of a response.

    Raises:
        InvalidRequest: the format is unknown, or its schema is not supported.
    """
    requested = sent.map("text").map("format")
    return _form(requested, requested)


def _form(requested: Fields, described: Fields) -> Mapping[str, Any]:
    kind = requested.text("type", "text")
    if kind in ("text", "json_object"):
        return {"type": kind}
    if kind != "json_schema":
        refuse(requested.place("type"), f"is {kind[:50]!r}", remedy="use text, json_object or json_schema")
    schema = described.get("schema")
    json_schema.check(schema, described.place("schema"))
    return {
        "type": kind,
        "name": described.text("name", "answer"),
        "schema": schema,
        "strict": described.flag("strict"),
    }


_IsUnsupported = Callable[[Any], bool]


def _more_than_one(value: Any) -> bool:
    return bool(value != 1)


def _is_forced(value: Any) -> bool:
    mode = value.get("mode") if isinstance(value, dict) and value.get("type") == "allowed_tools" else value
    return bool(mode not in ("none", "auto"))


_REFUSED: Mapping[str, tuple[_IsUnsupported, str]] = {
    "n": (_more_than_one, "send one request per answer"),
    "best_of": (_more_than_one, "send one request per answer"),
    "logprobs": (bool, "leave it out: answers are made by several models"),
    "top_logprobs": (bool, "leave it out: answers are made by several models"),
    "tool_choice": (
        _is_forced,
        "leave it out or use auto: HuggingGPT plans its own tasks and never calls tools of the client",
    ),
    "function_call": (_is_forced, "leave it out: functions of the client are never called"),
    "audio": (bool, "leave it out, and request speech in the message: the audio is returned as a link"),
    "web_search_options": (lambda value: value is not None, "leave it out: the web is not searched"),
    "prompt": (bool, "send the text of the prompt: stored prompts are not supported"),
}

_TEXT_ONLY = ["text"]

_NUMBERS = (
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "seed",
    "n",
)
"""Parameters that must be numbers; all but n have no effect."""

WARNING_HEADER = "x-hugginggpt-warning"
"""Response header that names parameters of the request without effect."""

_TOOLS_WARNING = "tools are ignored: HuggingGPT plans its own tasks and never calls tools of the client"
_STOP_WARNING = "stop ends only answers that an LLM writes; it is ignored in answers composed from results"


def answer_options(sent: Fields, form: Mapping[str, Any]) -> AnswerOptions:
    """Reads how the answer is to be written.

    Args:
        sent: the request.
        form: its response format.

    Raises:
        InvalidRequest: stop is neither a text nor a list of up to MAX_STOPS texts.
    """
    stop = [sent.text("stop")] if isinstance(sent.get("stop"), str) else sent.items("stop")
    if len(stop) > MAX_STOPS:
        refuse(sent.place("stop"), f"has more than {MAX_STOPS} texts", remedy="send fewer")
    texts = [checked_text(text, f"{sent.place('stop')}[{index}]") for index, text in enumerate(stop)]
    schema = form.get("schema")
    return AnswerOptions(
        json_schema="" if schema is None else canonical(schema, "schema"), stop=[text for text in texts if text]
    )


def warnings(sent: Fields) -> dict[str, str]:
    """The response header that names parameters without effect; empty if there are none."""
    has_tools = (sent.get("tools") and sent.get("tool_choice") != "none") or sent.get("functions")
    texts = [_TOOLS_WARNING] * bool(has_tools) + [_STOP_WARNING] * bool(sent.get("stop"))
    return {WARNING_HEADER: "; ".join(texts)} if texts else {}


def check_parameters(sent: Fields) -> None:
    """Raises InvalidRequest: UNSUPPORTED for an unsupported parameter, TYPE for one that is not a number."""
    for name in _NUMBERS:
        value = sent.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            refuse(sent.place(name), "is not a number", reason="TYPE", remedy="send a number, or leave it out")
    for name, (is_unsupported, remedy) in _REFUSED.items():
        if name in sent and is_unsupported(sent.get(name)):
            raise unsupported(sent.place(name), remedy)
    if sent.items("modalities") not in ([], _TEXT_ONLY):
        raise unsupported("modalities", _REFUSED["audio"][1])


def unsupported(where: str, remedy: str) -> InvalidRequest:
    return InvalidRequest(f"{where} is not supported", reason="UNSUPPORTED", remedy=remedy, port=where)


def read_metadata(sent: Fields) -> dict[str, str]:
    """Reads labels of the client.

    Raises:
        InvalidRequest: they are too many or too long.
    """
    found = {key: sent.text(key) for key in sent}
    too_long = any(len(key) > METADATA_KEY or len(text) > METADATA_VALUE for key, text in found.items())
    if len(found) > METADATA_ENTRIES or too_long:
        remedy = f"send up to {METADATA_ENTRIES} entries, keys of {METADATA_KEY}, values of {METADATA_VALUE} characters"
        refuse("metadata", "is too large", remedy=remedy)
    return found

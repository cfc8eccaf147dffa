"""Rejects parameters of OpenAI's API that are not supported and whose absence would change the result."""

from collections.abc import Callable, Mapping
from typing import Any

from gateway.openai.json_fields import Fields
from services.common.errors import InvalidRequest

_IsUnsupported = Callable[[Any], bool]


def _more_than_one(value: Any) -> bool:
    return bool(value != 1)


def _is_forced(value: Any) -> bool:
    return bool(value not in ("none", "auto"))


_REFUSED: Mapping[str, tuple[_IsUnsupported, str]] = {
    "n": (_more_than_one, "send one request per answer"),
    "best_of": (_more_than_one, "send one request per answer"),
    "logprobs": (bool, "leave it out: answers are made by several models"),
    "top_logprobs": (bool, "leave it out: answers are made by several models"),
    "stop": (bool, "leave it out, and truncate the answer in the client"),
    "tool_choice": (
        _is_forced,
        "leave it out: HuggingGPT plans its own tasks and never calls tools of the client",
    ),
    "function_call": (_is_forced, "leave it out: functions of the client are never called"),
    "audio": (bool, "leave it out, and request speech in the message: the audio is returned as a link"),
    "web_search_options": (lambda value: value is not None, "leave it out: the web is not searched"),
    "prompt": (bool, "send the text of the prompt: stored prompts are not supported"),
}

_TEXT_ONLY = ["text"]


def check(sent: Fields) -> None:
    """Raises InvalidRequest UNSUPPORTED for an unsupported parameter."""
    for name, (is_unsupported, remedy) in _REFUSED.items():
        if name in sent and is_unsupported(sent.get(name)):
            raise unsupported(sent.place(name), remedy)
    if sent.items("modalities") not in ([], _TEXT_ONLY):
        raise unsupported("modalities", _REFUSED["audio"][1])


def unsupported(where: str, remedy: str) -> InvalidRequest:
    return InvalidRequest(f"{where} is not supported", reason="UNSUPPORTED", remedy=remedy, port=where)

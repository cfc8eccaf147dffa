"""Parameters of OpenAI's that would be promises nobody keeps, refused; what is merely a wish is ignored."""

from collections.abc import Callable, Mapping
from typing import Any

from gateway.openai.json_fields import Fields
from services.common.errors import InvalidRequest

_Asks = Callable[[Any], bool]


def _more_than_one(value: Any) -> bool:
    return bool(value != 1)


def _is_demanded(value: Any) -> bool:
    return bool(value not in ("none", "auto"))


_REFUSED: Mapping[str, tuple[_Asks, str]] = {
    "n": (_more_than_one, "ask once for each answer"),
    "best_of": (_more_than_one, "ask once for each answer"),
    "logprobs": (bool, "leave it out: answers come of several models"),
    "top_logprobs": (bool, "leave it out: answers come of several models"),
    "stop": (bool, "leave it out, and cut the answer yourself"),
    "tool_choice": (
        _is_demanded,
        "leave it out: the tasks of the house are planned, tools of a client are never called",
    ),
    "function_call": (_is_demanded, "leave it out: functions of a client are never called"),
    "audio": (bool, "ask in words to have it read aloud: the recording comes as a link"),
    "web_search_options": (lambda value: value is not None, "leave it out: the web is not searched"),
    "prompt": (bool, "send the prompt's text: no prompts are kept here"),
}

_TEXT_ONLY = ["text"]


def check(sent: Fields) -> None:
    """Raises InvalidRequest UNSUPPORTED for a parameter whose effect would be missed."""
    for name, (asks, remedy) in _REFUSED.items():
        if name in sent and asks(sent.get(name)):
            raise unsupported(sent.place(name), remedy)
    if sent.items("modalities") not in ([], _TEXT_ONLY):
        raise unsupported("modalities", _REFUSED["audio"][1])


def unsupported(where: str, remedy: str) -> InvalidRequest:
    return InvalidRequest(f"{where} cannot be honoured here", reason="UNSUPPORTED", remedy=remedy, port=where)

"""Parameters that a clause states: languages, lengths, counts, sizes, and any parameter that it names."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from services.planner.embedded.languages import PATTERN as LANGUAGE
from services.planner.embedded.languages import TAGS
from services.planner.plan_check import schema_violation
from services.planner.task_spec import Parameter, Spec

_NUMBER_WORDS = {
    word: number
    for number, word in enumerate(
        ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
    )
}
_NUMBER = rf"(?:\d+(?:\.\d+)?|{'|'.join(_NUMBER_WORDS)})"

TARGET = re.compile(
    rf"\b(?:in)?to\s+(?:the\s+)?({LANGUAGE})\b|\bin\s+({LANGUAGE})\b|\b({LANGUAGE})\s+(?:translation|version)"
)
SOURCE = re.compile(
    rf"\bfrom\s+(?:the\s+)?({LANGUAGE})\b|\b(?:this|the|my|an?)\s+({LANGUAGE})\s+(?!(?:translation|version|for|of|one|say|says|calls?)\b)\w+"
)
SPOKEN = re.compile(rf"\b(?:in|into|to|an?|the|this|my|with)\s+(?:an?\s+)?({LANGUAGE})\b")

Parser = Callable[[str], Any]


def _language(pattern: re.Pattern[str]) -> Parser:
    def read(words: str) -> str | None:
        found = pattern.search(words)
        return TAGS[next(group for group in found.groups() if group)] if found else None

    return read


def _whole(pattern: str) -> Parser:
    compiled = re.compile(pattern)

    def read(words: str) -> int | None:
        found = compiled.search(words)
        return int(_number(next(group for group in found.groups() if group))) if found else None

    return read


def _number(word: str) -> float:
    return float(_NUMBER_WORDS[word]) if word in _NUMBER_WORDS else float(word)


_CONFIDENCE = r"(?:confiden(?:ce|t)|scores?|threshold|certainty|probability|sure)"
_THRESHOLD = re.compile(
    rf"{_CONFIDENCE}\D{{0,20}}?(?P<after>\d+(?:\.\d+)?)\s?(?P<share>%|per\s?cent)?"
    rf"|(?P<before>\d+(?:\.\d+)?)\s?(?P<part>%|per\s?cent)?\s+{_CONFIDENCE}\b"
    r"|\b(?:under|below|above|over|at\s+least)\s+(?P<alone>\d+)\s?(?:%|per\s?cent)"
)


def _threshold(words: str) -> float | None:
    found = _THRESHOLD.search(words)
    if found is None:
        return None
    number = float(found["after"] or found["before"] or found["alone"])
    return number / (100 if found["share"] or found["part"] or found["alone"] else 1)


def _scale(words: str) -> float | None:
    found = re.search(
        r"\b(\d+(?:\.\d+)?)\s?(?:x|×|times)(?!\s?\d)|(?<![\w.])[x×]\s?(\d+(?:\.\d+)?)\b"
        rf"|\bby\s+(?:a factor of\s+)?({_NUMBER})\b(?!\s?(?:%|per))|\b({_NUMBER})\s+times\b",
        words,
    )
    if found:
        return _number(next(group for group in found.groups() if group))
    return 2.0 if re.search(r"\b(?:double|twice)\b", words) else None


def _seconds(words: str) -> float | None:
    found = re.search(rf"\b({_NUMBER})[\s-]?(s|secs?|seconds?|mins?|minutes?)\b", words)
    return _number(found[1]) * (60 if found[2].startswith("m") else 1) if found else None


def _speed(words: str) -> float | None:
    if found := re.search(r"(\d(?:\.\d+)?)\s?x\b|\b(?:at )?(double|half) (?:the )?speed|\b(twice|half) as fast", words):
        return float(found[1]) if found[1] else {"half": 0.5}.get(found[2] or found[3], 2.0)
    if re.search(r"\b(?:slow|slowly|slower)\b", words):
        return 0.75
    return 1.5 if re.search(r"\b(?:fast|quickly|faster|rapidly)\b", words) else None


def _voice(words: str) -> str | None:
    found = re.search(
        r"\b(female|male|woman|man)(?:'s)?(?:\s+\w+)?\s+voice|voice of an? (female|male|woman|man)", words
    )
    if found:
        return {"woman": "female", "man": "male"}.get(word := found[1] or found[2], word)
    kind = re.search(rf"\b(?:in|with)\s+an?\s+(?!(?:{LANGUAGE})\b)([a-z]+)\s+(?:voice|accent)\b", words)
    return kind[1] if kind else None


def _size(group: int, name: str) -> Parser:
    alone = re.compile(rf"\b(\d{{2,4}})[\s-]?(?:px|pixels?)?\s+{name}\b")

    def read(words: str) -> int | None:
        if named := alone.search(words):
            return int(named[1])
        found = re.search(r"\b(\d{2,4})\s?(?:x|×|by)\s?(\d{2,4})\b", words)
        return int(found[group]) if found else None

    return read


_FORMAT = re.compile(
    r"\b(?:to|into|as|in)\s+(?:an?\s+)?(?:\w+\s+)?(?P<after>{0})\b|\b(?P<alone>{0})\b".format(
        "jpe?g|png|webp|gif|bmp|tiff?|pdf|mp3|ogg|vorbis|flac|wave?"
    )
)
_FORMATS = {"jpg": "jpeg", "tif": "tiff", "vorbis": "ogg", "wave": "wav"}


def _format(words: str) -> str | None:
    """The format after "to" or "as", else the last that is named."""
    found = list(_FORMAT.finditer(words))
    named = [one["after"] for one in found if one["after"]] or [one["alone"] for one in found]
    return _FORMATS.get(named[-1], named[-1]) if named else None


_UNWANTED = re.compile(
    r"(?:,|\bbut)\s*(?:with\s+)?(?:no|without)\s+((?:[a-z'-]+\s+){0,2}?[a-z'-]+)(?=\s+(?:on|in)\s+(?:it|the\b.*)|\s*(?:$|[.,;!]|and\b))"
)


def _unwanted(words: str) -> str | None:
    found = _UNWANTED.search(words)
    return found[1] if found else None


PARSERS: Mapping[str, Parser] = {
    "target_language": _language(TARGET),
    "source_language": _language(SOURCE),
    "language": _language(SPOKEN),
    "max_length": _whole(
        rf"(?:in|to|most|under|than|within|maximum(?: of)?|max|about|around|below)\s+({_NUMBER})[\s-]words?"
        rf"|({_NUMBER})[\s-]word\b|\bbetween\s+\d+\s+and\s+(\d+)\s+words?"
    ),
    "min_length": _whole(
        rf"(?:at least|minimum(?: of)?|no fewer than|no less than)\s+({_NUMBER})\s+words?"
        r"|\bbetween\s+(\d+)\s+and\s+\d+\s+words?"
    ),
    "top_k": _whole(rf"\b(?:top|best|first)[\s-]({_NUMBER})\b|\b({_NUMBER}) (?:best|likeliest|most likely)\b"),
    "num_frames": _whole(rf"\b({_NUMBER})[\s-]frames?\b"),
    "num_inference_steps": _whole(rf"\b({_NUMBER})\s+(?:inference\s+|denoising\s+)?steps\b"),
    "seed": _whole(r"\bseed\s*(?:of|=|:|is)?\s*(\d+)\b"),
    "threshold": _threshold,
    "scale": _scale,
    "duration": _seconds,
    "speed": _speed,
    "voice": _voice,
    "negative_prompt": _unwanted,
    "format": _format,
    "width": _size(1, "wide"),
    "height": _size(2, "(?:high|tall)"),
}


def parameters(spec: Spec, masked: str) -> dict[str, Any]:
    """Returns the parameters of a task that lower-case words state, as far as their schemas allow them."""
    found: dict[str, Any] = {}
    for parameter in spec.parameters:
        parser = PARSERS.get(parameter.name)
        value = parser(masked) if parser else _by_name(parameter, masked)
        if value is not None and not schema_violation(parameter, value):
            found[parameter.name] = value
    return found


def _by_name(parameter: Parameter, masked: str) -> Any:
    """Any parameter that is called by its name, or whose value is one of a few that are named."""
    try:
        schema = json.loads(parameter.json_schema or "{}")
    except ValueError:
        schema = {}
    if not isinstance(schema, dict):
        return None
    name = r"[\s_-]+".join(map(re.escape, re.split(r"[\s_-]+", parameter.name.lower())))
    parser = _BY_TYPE.get(str(schema.get("type")))
    chosen = _chosen(schema.get("enum"), masked)
    return chosen if chosen is not None or parser is None else parser(name, masked)


def _chosen(choices: object, masked: str) -> str | None:
    words = [choice for choice in choices if isinstance(choice, str)] if isinstance(choices, list) else []
    return next((word for word in words if re.search(rf"(?<![\w-]){re.escape(word.lower())}(?![\w-])", masked)), None)


def _numeric(name: str, masked: str) -> float | None:
    found = re.search(rf"\b({_NUMBER})\s+{name}\b|\b{name}\s*(?:of|to|=|:|is)?\s*({_NUMBER})\b", masked)
    return _number(found[1] or found[2]) if found else None


def _integral(name: str, masked: str) -> int | None:
    number = _numeric(name, masked)
    return int(number) if number is not None and number.is_integer() else None


def _boolean(name: str, masked: str) -> bool | None:
    if re.search(rf"\b(?:no|without)\s+{name}\b", masked):
        return False
    return True if re.search(rf"\b{name}\b", masked) else None


def _word(name: str, masked: str) -> str | None:
    found = re.search(rf"\b{name}\s*(?:=|:|is|of|to)\s*([\w.-]+)", masked)
    return found[1] if found else None


_BY_TYPE: Mapping[str, Callable[[str, str], Any]] = {
    "number": _numeric,
    "integer": _integral,
    "boolean": _boolean,
    "string": _word,
}

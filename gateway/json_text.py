"""JSON as text: read strictly, written canonically."""

import json
import re
from typing import Any, NoReturn

from services.common.errors import InvalidRequest

MAX_DEPTH = 100
"""Deepest nesting of JSON taken: whoever reads it later has less of the stack left."""

MOST_GROUPS = 500_000
"""Most lists and objects in JSON: making more takes seconds in which not even another thread runs."""

QUICK_BYTES = 1_000_000
"""What is read at once; more is read on a thread, while others are served."""

_FLAT = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[^\[\]{}"]+')
"""All of JSON but its brackets."""
_SURROGATE = re.compile("[\ud800-\udfff]")


def loads(content: bytes, where: str = "") -> Any:
    """JSON as it was sent.

    Raises:
        InvalidRequest: not UTF-8, not JSON, nested too deeply, with numbers that are not finite; TOO_LARGE.
    """
    if content.count(b"[") + content.count(b"{") > MOST_GROUPS:
        refuse(where, f"has more than {MOST_GROUPS} lists and objects", reason="TOO_LARGE", remedy="send data as files")
    try:
        return json.loads(content.decode(), parse_constant=_not_finite)
    except UnicodeDecodeError as error:
        refuse(where, f"is not UTF-8 (byte {error.start})", reason="NOT_UTF8", remedy="send text as UTF-8")
    except json.JSONDecodeError as error:
        refuse(where, f"is not JSON: {error.msg} (line {error.lineno}, column {error.colno})", remedy="send valid JSON")
    except ValueError:
        refuse(where, "holds a number too long to read", remedy="send shorter numbers")
    except RecursionError:
        refuse(where, "is nested too deeply", remedy="send flatter JSON")


def canonical(content: Any, where: str) -> str:
    """JSON as values carry it: sorted keys, no spaces."""
    try:
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        refuse(where, "is not plain JSON", remedy="send finite numbers and flat structures")
    if _is_deep(text):
        refuse(where, f"is nested more than {MAX_DEPTH} deep", remedy="send flatter JSON")
    return checked_text(text, where)


def _is_deep(text: str) -> bool:
    """Whether brackets are left when the innermost have been taken away as often as may be."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return False
    brackets = _FLAT.sub("", text)
    for _ in range(MAX_DEPTH):
        brackets = brackets.replace("[]", "").replace("{}", "")
    return bool(brackets)


def checked_text(content: Any, where: str) -> str:
    if not isinstance(content, str):
        refuse(where, "is not a string", remedy="send a string")
    if _SURROGATE.search(content):
        refuse(where, "has half of a surrogate pair", reason="NOT_UTF8", remedy="send whole characters")
    return content


def refuse(where: str, what: str, *, reason: str | None = None, remedy: str = "") -> NoReturn:
    raise InvalidRequest(f"{where or 'the body'} {what}", reason=reason, remedy=remedy, port=where)


def _not_finite(name: str) -> NoReturn:
    refuse("", f"holds {name}, which is not JSON", remedy="send finite numbers")

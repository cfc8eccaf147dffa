"""Strict parsing and canonical serialization of the JSON of clients, with errors that name the field."""

import json
import re
from typing import Any, NoReturn

from services.common.errors import InvalidRequest

MAX_DEPTH = 100
"""Maximum nesting depth; later parsers may have less of the stack left."""

MAX_CONTAINERS = 500_000
"""Maximum number of lists and objects; parsing more takes seconds while holding the interpreter lock."""

INLINE_PARSE_BYTES = 1_000_000
"""Larger JSON is parsed on a thread, so that the event loop keeps running."""

_FLAT = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[^\[\]{}"]+')
"""Everything in JSON except its brackets."""
_SURROGATE = re.compile("[\ud800-\udfff]")


def loads(content: bytes, where: str = "") -> Any:
    """Parses JSON.

    Raises:
        InvalidRequest: not UTF-8, invalid JSON, nested too deeply, or a number that is not finite; TOO_LARGE.
    """
    if content.count(b"[") + content.count(b"{") > MAX_CONTAINERS:
        refuse(
            where, f"has more than {MAX_CONTAINERS} lists and objects", reason="TOO_LARGE", remedy="send data as files"
        )
    try:
        return json.loads(content.decode(), parse_constant=_not_finite)
    except UnicodeDecodeError as error:
        refuse(where, f"is not UTF-8 (byte {error.start})", reason="NOT_UTF8", remedy="send text as UTF-8")
    except json.JSONDecodeError as error:
        refuse(where, f"is not JSON: {error.msg} (line {error.lineno}, column {error.colno})", remedy="send valid JSON")
    except ValueError:
        refuse(where, "contains a number with too many digits", remedy="send shorter numbers")
    except RecursionError:
        refuse(where, "is nested too deeply", remedy="send flatter JSON")


def canonical(content: Any, where: str) -> str:
    """Serializes JSON canonically: sorted keys, no spaces."""
    try:
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        refuse(where, "is not valid JSON", remedy="send finite numbers and flat structures")
    if _is_deep(text):
        refuse(where, f"is nested more than {MAX_DEPTH} levels deep", remedy="send flatter JSON")
    return checked_text(text, where)


def _is_deep(text: str) -> bool:
    """Whether the nesting exceeds MAX_DEPTH, found by removing the innermost brackets MAX_DEPTH times."""
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
        refuse(where, "contains an unpaired surrogate", reason="NOT_UTF8", remedy="send valid Unicode")
    return content


def refuse(where: str, what: str, *, reason: str | None = None, remedy: str = "") -> NoReturn:
    raise InvalidRequest(f"{where or 'the body'} {what}", reason=reason, remedy=remedy, port=where)


def _not_finite(name: str) -> NoReturn:
    refuse("", f"contains {name}, which is not valid JSON", remedy="send finite numbers")

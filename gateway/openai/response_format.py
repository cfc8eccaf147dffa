"""Which form an answer is to have: text, any JSON object, or JSON by a schema."""

from collections.abc import Mapping
from typing import Any

from gateway.json_text import canonical, refuse
from gateway.openai import json_schema
from gateway.openai.json_fields import Fields

TEXT: Mapping[str, Any] = {"type": "text"}


def of_chat(sent: Fields) -> Mapping[str, Any]:
    """The form a chat completion is to have, as the Responses API spells it.

    Raises:
        InvalidRequest: it is none of OpenAI's, or its schema cannot be used.
    """
    wanted = sent.map("response_format")
    return _form(wanted, wanted.map("json_schema"))


def of_response(sent: Fields) -> Mapping[str, Any]:
    """The form a response is to have.

    Raises:
        InvalidRequest: it is none of OpenAI's, or its schema cannot be used.
    """
    wanted = sent.map("text").map("format")
    return _form(wanted, wanted)


def _form(wanted: Fields, described: Fields) -> Mapping[str, Any]:
    kind = wanted.text("type", "text")
    if kind in ("text", "json_object"):
        return {"type": kind}
    if kind != "json_schema":
        refuse(wanted.place("type"), f"is {kind[:50]!r}", remedy="use text, json_object or json_schema")
    asked = described.get("schema")
    json_schema.check(asked, described.place("schema"))
    form = {"type": kind, "name": described.text("name", "answer"), "schema": asked, "strict": described.flag("strict")}
    if len(canonical(form, described.place("schema"))) > json_schema.MOST_BYTES:
        refuse(described.place("schema"), "is too long", reason="SCHEMA", remedy="ask for less at once")
    return form

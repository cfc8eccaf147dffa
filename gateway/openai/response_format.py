"""Response formats: text, any JSON object, or JSON of a schema."""

from collections.abc import Mapping
from typing import Any

from gateway.json_text import canonical, refuse
from gateway.openai import json_schema
from gateway.openai.json_fields import Fields

TEXT: Mapping[str, Any] = {"type": "text"}


def of_chat(sent: Fields) -> Mapping[str, Any]:
    """Reads the response format of a chat completion, in the notation of the Responses API.

    Raises:
        InvalidRequest: the format is unknown, or its schema is not supported.
    """
    requested = sent.map("response_format")
    return _form(requested, requested.map("json_schema"))


def of_response(sent: Fields) -> Mapping[str, Any]:
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
    form = {
        "type": kind,
        "name": described.text("name", "answer"),
        "schema": schema,
        "strict": described.flag("strict"),
    }
    if len(canonical(form, described.place("schema"))) > json_schema.MAX_BYTES:
        refuse(described.place("schema"), "is too long", reason="SCHEMA", remedy="use a smaller schema")
    return form

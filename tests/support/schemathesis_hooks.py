"""Serialization of JSON lines for Schemathesis."""

import json
from typing import Any

import schemathesis


@schemathesis.serializer("application/x-ndjson")
def serialize_lines(_context: schemathesis.SerializationContext, value: Any) -> bytes | None:
    documents = value if isinstance(value, list) else [value]
    return b"".join(json.dumps(document).encode() + b"\n" for document in documents)


@schemathesis.deserializer("application/x-ndjson")
def parse_lines(_context: schemathesis.DeserializationContext, response: schemathesis.Response) -> list[Any]:
    return [json.loads(line) for line in response.content.splitlines()]

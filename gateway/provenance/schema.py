"""JSON Schema of run records, complete in itself for use outside the API."""

import json
from typing import Any

from gateway.openapi.schemas import reference, schemas
from gateway.provenance.record import VERSION
from protos.hugginggpt.v1.record_pb2 import RunRecord

_WITHIN_API = reference("")["$ref"]


def record_schema() -> dict[str, Any]:
    """Returns the schema with all definitions inlined under $defs."""
    found = schemas([RunRecord.DESCRIPTOR], as_input=False)
    defined: dict[str, Any] = json.loads(json.dumps(found).replace(_WITHIN_API, "#/$defs/"))
    defined["RunRecord"]["properties"]["version"] = {"const": VERSION}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The record of a run",
        "$ref": "#/$defs/RunRecord",
        "$defs": defined,
    }

"""Digests of texts, JSON and values."""

import hashlib
import json
from contextlib import suppress

from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.record_pb2 import DIGEST_KIND_ARTIFACT, DIGEST_KIND_JSON, DIGEST_KIND_TEXT, Digest, DigestKind


def of_text(text: str, kind: "DigestKind.ValueType" = DIGEST_KIND_TEXT) -> Digest:
    """Digest of the text's UTF-8 bytes."""
    content = text.encode()
    return Digest(sha256=hashlib.sha256(content).hexdigest(), kind=kind, size_bytes=len(content))


def of_json(text: str) -> Digest:
    """Digest of the canonical JSON; of the text itself if it is not valid JSON."""
    with suppress(ValueError, RecursionError):
        text = canonical(json.loads(text))
    return of_text(text, DIGEST_KIND_JSON)


def canonical(content: object) -> str:
    """Canonical JSON: sorted keys, no spaces, no escapes of non-ASCII characters."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def of_value(value: Value) -> Digest | None:
    """Digest of a value; None if the value is empty."""
    match value.WhichOneof("kind"):
        case "text":
            return of_text(value.text)
        case "json":
            return of_json(value.json)
        case "artifact":
            artifact = value.artifact
            return Digest(
                sha256=artifact.sha256,
                kind=DIGEST_KIND_ARTIFACT,
                size_bytes=artifact.size_bytes,
                media_type=artifact.media_type,
            )
    return None

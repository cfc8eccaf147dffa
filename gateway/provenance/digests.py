"""Digests that stand for content."""

import hashlib
import json
from contextlib import suppress

from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.record_pb2 import DIGEST_KIND_ARTIFACT, DIGEST_KIND_JSON, DIGEST_KIND_TEXT, Digest, DigestKind


def of_text(text: str, kind: "DigestKind.ValueType" = DIGEST_KIND_TEXT) -> Digest:
    """Over its UTF-8 bytes."""
    content = text.encode()
    return Digest(sha256=hashlib.sha256(content).hexdigest(), kind=kind, size_bytes=len(content))


def of_json(text: str) -> Digest:
    """Over its canonical form; over itself where it is none."""
    with suppress(ValueError, RecursionError):
        text = canonical(json.loads(text))
    return of_text(text, DIGEST_KIND_JSON)


def canonical(content: object) -> str:
    """Sorted keys, no spaces, letters as they are."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def of_value(value: Value) -> Digest | None:
    """None for no value."""
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

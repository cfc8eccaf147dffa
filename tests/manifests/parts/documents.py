"""Metadata that all documents have."""

from typing import Any

from tests.manifests.deployment import Document

NAMESPACE = "hugginggpt"


def document(api: str, kind: str, name: str, labels: dict[str, str] | None = None, **rest: Any) -> Document:
    labels = {"app.kubernetes.io/part-of": "hugginggpt"} | (labels or {})
    metadata = {"name": name, "labels": labels}
    if kind not in {"Namespace", "PriorityClass"}:
        metadata["namespace"] = NAMESPACE
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **rest}

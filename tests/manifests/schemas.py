"""Validates documents against the schemas of Kubernetes and of the extensions whose resources the manifests use."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import kubernetes_validate.utils
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from tests.manifests.deployment import RAY_JOB, Document, Manifests, Workload, display_name

VERSIONS = ("1.32", "1.34", "1.36", "1.37")
"""Kubernetes versions: the oldest supported, the newest with a published schema, and two between."""

kubernetes_validate.utils.schema_contents = cache(kubernetes_validate.utils.schema_contents)
"""Otherwise the definitions of all kinds are parsed for each document, which takes most of the time."""

EXTENSIONS = Path(__file__).parent / "extensions"
"""Schemas of custom resources; its README describes where they are from."""


def violations(manifests: Manifests, version: str) -> Iterator[str]:
    """Errors that a strict API server of a version would report."""
    ray_pods = [_pod(workload) for workload in manifests.workloads if workload.kind == RAY_JOB]
    for document in (*manifests.documents, *ray_pods):
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.SchemaNotFoundError:
            yield from _extension_violations(document)
        except ValidationError as error:
            yield f"{display_name(document)}: {_where(error)}: {error.message}"


def _pod(workload: Workload) -> Document:
    """A pod of a workload, to validate a template in a custom resource as one of Kubernetes' own."""
    metadata = {**workload.template.get("metadata", {}), "name": workload.name}
    return {**workload.template, "apiVersion": "v1", "kind": "Pod", "metadata": metadata}


def file_name(api_version: str, kind: str) -> str:
    """Name of the file with the schema of a kind's spec."""
    return f"{kind.lower()}-{api_version.replace('/', '-')}.json"


def _extension_violations(document: Document) -> Iterator[str]:
    path = EXTENSIONS / file_name(document["apiVersion"], document["kind"])
    if not path.exists():
        yield f"{display_name(document)}: no schema for {document['apiVersion']} {document['kind']}"
        return
    if unknown := set(document) - {"apiVersion", "kind", "metadata", "spec"}:
        yield f"{display_name(document)}: has {', '.join(sorted(unknown))} outside its spec"
    for error in _validator(path).iter_errors(document.get("spec")):
        yield f"{display_name(document)}: spec.{_where(error)}: {error.message}"


@cache
def _validator(path: Path) -> Draft202012Validator:
    schema: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def _where(error: ValidationError) -> str:
    return ".".join(str(part) for part in error.absolute_path)

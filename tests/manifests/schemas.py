"""Documents against the schemas of Kubernetes, and of the extensions whose resources we use."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from tests.manifests.deployment import Document, House, called

VERSIONS = ("1.32", "1.34", "1.37")
"""Of Kubernetes: the oldest that the manifests are for, the newest known here, and one between."""

_WRITTEN = Path(__file__).parent / "extensions"
"""By hand: what we use of a resource's spec, and nothing else of it."""


def complaints(house: House, version: str) -> Iterator[str]:
    """What a strict server of a version would refuse."""
    for document in house.documents:
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.SchemaNotFoundError:
            yield from _of_extensions(document)
        except ValidationError as error:
            yield f"{called(document)}: {_where(error)}: {error.message}"


def _of_extensions(document: Document) -> Iterator[str]:
    path = _WRITTEN / f"{document['kind'].lower()}-{document['apiVersion'].replace('/', '-')}.json"
    if not path.exists():
        yield f"{called(document)}: no schema is known of {document['apiVersion']} {document['kind']}"
        return
    if unknown := set(document) - {"apiVersion", "kind", "metadata", "spec"}:
        yield f"{called(document)}: has {', '.join(sorted(unknown))} beside its spec"
    for error in _validator(path).iter_errors(document.get("spec")):
        yield f"{called(document)}: spec.{_where(error)}: {error.message}"


@cache
def _validator(path: Path) -> Draft202012Validator:
    schema: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def _where(error: ValidationError) -> str:
    return ".".join(str(part) for part in error.absolute_path)

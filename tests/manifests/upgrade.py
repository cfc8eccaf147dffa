"""Changes between two renders that an API server rejects, because the field cannot change after creation."""

from collections.abc import Iterator, Mapping
from typing import Any

from tests.manifests.deployment import Document, Manifests, display_name

_CHANGEABLE_OF_STATEFUL_SETS = {
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "minReadySeconds",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
}

_IMMUTABLE = {
    "Deployment": ("spec.selector",),
    "DaemonSet": ("spec.selector",),
    "Job": ("spec.template", "spec.selector", "spec.completionMode", "spec.podFailurePolicy"),
    "Service": ("spec.clusterIP",),
    "PersistentVolumeClaim": ("spec.accessModes", "spec.storageClassName", "spec.volumeName", "spec.volumeMode"),
    "PriorityClass": ("value", "preemptionPolicy"),
    "RuntimeClass": ("handler",),
    "RoleBinding": ("roleRef",),
    "ClusterRoleBinding": ("roleRef",),
    "Secret": ("type",),
}
"""Fields that cannot change, by kind; those of StatefulSets are all others than _CHANGEABLE_OF_STATEFUL_SETS."""


def rejected_changes(before: Manifests, after: Manifests) -> Iterator[str]:
    """Errors that applying `after` over `before` would give."""
    existing = {_key(document): document for document in before.documents}
    for document in after.documents:
        if old := existing.get(_key(document)):
            yield from _rejected(old, document)


def _key(document: Document) -> tuple[str, str, str]:
    group = document["apiVersion"].rpartition("/")[0]
    return group, str(document["metadata"].get("namespace")), display_name(document)


def _rejected(old: Document, new: Document) -> Iterator[str]:
    if new["kind"] == "StatefulSet":
        fields = [f"spec.{name}" for name in sorted({*old["spec"], *new["spec"]} - _CHANGEABLE_OF_STATEFUL_SETS)]
    else:
        fields = list(_IMMUTABLE.get(new["kind"], ()))
    if old.get("immutable"):
        fields.append("data")
    for field in fields:
        if _at(old, field) != _at(new, field):
            yield f"{display_name(new)}: {field} cannot change"


def _at(document: Document, path: str) -> Any:
    found: Any = document
    for key in path.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found

"""Minimal valid manifests, and variants with one change that violates a rule."""

import copy
from typing import Any, Final

from tests.manifests.deployment import Manifests
from tests.manifests.parts.documents import NAMESPACE, document
from tests.manifests.parts.extensions import extensions
from tests.manifests.parts.policies import policies
from tests.manifests.parts.workloads import experts, server

REMOVED: Final = object()
"""Value for corrupted_manifests: removes the field."""

_SETTINGS = {
    "ARTIFACTS_URL": "s3://hugginggpt/artifacts",
    "LOG_FORMAT": "json",
    "CONNECTION_SECONDS": "60",
    "HF_HUB_OFFLINE": "1",
}


def valid_manifests() -> Manifests:
    return Manifests(
        (
            document("v1", "Namespace", NAMESPACE, labels={"pod-security.kubernetes.io/enforce": "restricted"}),
            document("scheduling.k8s.io/v1", "PriorityClass", "serving", value=1000),
            document(
                "v1",
                "ConfigMap",
                "hugginggpt",
                data=dict(_SETTINGS),
            ),
            *server("gateway", "gateway", env={"GATEWAY_ORCHESTRATOR": "dns:///orchestrator:50051"}),
            *server("orchestrator", "services.orchestrator", env={"ORCHESTRATOR_ADDRESS": "$(POD_IP):50051"}),
            *server("planner", "services.planner"),
            *server("selector", "services.selector", env={"SELECTOR_EXPERTS": "dns:///experts:50051"}),
            *server("responder", "services.responder"),
            *server("expert-text", "experts.text", env={"DRAIN_SECONDS": "300", "EXPERT_SCALES_TO_ZERO": "true"}),
            experts(),
            document("v1", "PersistentVolumeClaim", "models", spec={"accessModes": ["ReadWriteMany"]}),
            *extensions(),
            *policies(),
        )
    )


def corrupted_manifests(name: str, path: str, value: Any) -> Manifests:
    """The valid manifests with one field changed or removed, as `changed` describes."""
    return changed(valid_manifests(), name, path, value)


def changed(manifests: Manifests, name: str, path: str, value: Any) -> Manifests:
    """Manifests with one field changed or removed.

    Args:
        manifests: The unchanged ones.
        name: Kind and name of the document, as in Deployment/planner.
        path: Path of the field, as in spec.template.spec.containers.0.image; `~` is a dot within a key.
        value: New value, or REMOVED.
    """
    documents = copy.deepcopy(list(manifests.documents))
    kind, _, document_name = name.partition("/")
    document = next(d for d in documents if d["kind"] == kind and d["metadata"]["name"] == document_name)
    *parents, last = (int(part) if part.isdigit() else part.replace("~", ".") for part in path.split("."))
    parent: Any = document
    for part in parents:
        parent = parent[part]
    if value is REMOVED:
        del parent[last]
    elif isinstance(parent, list) and last == len(parent):
        parent.append(value)
    else:
        parent[last] = value
    return Manifests(tuple(documents))

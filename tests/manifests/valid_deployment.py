"""A small house that no rule complains of, and the same with something spoilt."""

import copy
from typing import Any, Final

from tests.manifests.deployment import House
from tests.manifests.parts.documents import NAMESPACE, document
from tests.manifests.parts.extensions import extensions
from tests.manifests.parts.policies import policies
from tests.manifests.parts.workloads import experts, served

GONE: Final = object()
"""Spoils by taking away."""

_TOLD = {
    "ARTIFACTS_URL": "s3://house/artifacts",
    "LOG_FORMAT": "json",
    "CONNECTION_SECONDS": "60",
    "HF_HUB_OFFLINE": "1",
}


def sound() -> House:
    return House(
        (
            document("v1", "Namespace", NAMESPACE, labels={"pod-security.kubernetes.io/enforce": "restricted"}),
            document("scheduling.k8s.io/v1", "PriorityClass", "serving", value=1000),
            document(
                "v1",
                "ConfigMap",
                "hugginggpt",
                data=dict(_TOLD),
            ),
            *served("gateway", "gateway", env={"GATEWAY_ORCHESTRATOR": "dns:///orchestrator:50051"}),
            *served("orchestrator", "services.orchestrator", env={"ORCHESTRATOR_ADDRESS": "$(POD_IP):50051"}),
            *served("planner", "services.planner"),
            *served("selector", "services.selector", env={"SELECTOR_EXPERTS": "dns:///experts:50051"}),
            *served("responder", "services.responder"),
            *served("expert-text", "experts.text", env={"DRAIN_SECONDS": "300", "EXPERT_MAY_SLEEP": "true"}),
            experts(),
            document("v1", "PersistentVolumeClaim", "models", spec={"accessModes": ["ReadWriteMany"]}),
            *extensions(),
            *policies(),
        )
    )


def spoilt(name: str, path: str, value: Any) -> House:
    """The sound house with one thing changed, or GONE.

    Args:
        name: of the document, as Deployment/planner.
        path: of the thing in it, as spec.template.spec.containers.0.image; a slash before a dot is part of a name.
        value: what stands there instead.
    """
    documents = copy.deepcopy(list(sound().documents))
    kind, _, called = name.partition("/")
    document = next(d for d in documents if d["kind"] == kind and d["metadata"]["name"] == called)
    *way, last = (int(part) if part.isdigit() else part.replace("~", ".") for part in path.split("."))
    place: Any = document
    for part in way:
        place = place[part]
    if value is GONE:
        del place[last]
    elif isinstance(place, list) and last == len(place):
        place.append(value)
    else:
        place[last] = value
    return House(tuple(documents))

"""Scalers query the orchestrators' metrics, and experts that scale to zero declare it."""

import re
from collections.abc import Iterator

from tests.manifests.deployment import Document, Manifests, Workload, display_name
from tests.manifests.environment import PROGRAMS, module_of, setting_values

_DEMAND = re.compile(r'expert_queue_depth\{[^}]*expert="([\w-]+)"[^}]*\}')


def dormant_experts_are_declared(manifests: Manifests) -> Iterator[str]:
    """The catalogue keeps an unreachable expert only if it set EXPERT_SCALES_TO_ZERO."""
    for workload in manifests.long_running:
        if workload.is_expert and not any(setting_values(manifests, workload, "scales_to_zero")):
            for reason in _dormancy_reasons(manifests, workload):
                yield f"{workload}: may be unreachable, since {reason}: set EXPERT_SCALES_TO_ZERO"


def _dormancy_reasons(manifests: Manifests, workload: Workload) -> Iterator[str]:
    """Reasons why no pod may be available: a minimum below two replicas, or rollouts without surge."""
    for scaler in manifests.of_kind("ScaledObject"):
        least = scaler["spec"].get("minReplicaCount", 0)
        if scaler["spec"]["scaleTargetRef"]["name"] == workload.name and least < 2:
            yield f"{display_name(scaler)} has a minReplicaCount of {least}"
    if workload.spec.get("strategy", {}).get("rollingUpdate", {}).get("maxSurge") == 0:
        yield "its maxSurge is 0"


def database_connections_fit(manifests: Manifests) -> Iterator[str]:
    """All replicas that may exist at once, in a rollout too, open no more connections than PostgreSQL accepts."""
    total = 0
    for workload in manifests.long_running:
        surge = int(workload.spec.get("strategy", {}).get("rollingUpdate", {}).get("maxSurge", 1))
        for connections in setting_values(manifests, workload, "database_connections"):
            total += (_most_replicas(manifests, workload) + surge) * connections
    if total > MAX_CONNECTIONS:
        yield f"gateway and orchestrator: may open {total} connections, and the database accepts {MAX_CONNECTIONS}"


MAX_CONNECTIONS = 97
"""PostgreSQL's default of 100, less 3 that it reserves for superusers."""


def _most_replicas(manifests: Manifests, workload: Workload) -> int:
    """Highest number of replicas that a workload is scaled to."""
    for scaler in manifests.of_kind("HorizontalPodAutoscaler"):
        if scaler["spec"]["scaleTargetRef"]["name"] == workload.name:
            return int(scaler["spec"]["maxReplicas"])
    return int(workload.spec.get("replicas", 1))


def scalers_query_their_own_expert(manifests: Manifests) -> Iterator[str]:
    """Several Deployments of one expert are scaled by the demand for their own models."""
    scalers: dict[str, list[Document]] = {}
    for scaler in manifests.of_kind("ScaledObject"):
        experts = {expert for query in _queries(scaler) for expert in _DEMAND.findall(query)}
        own = _expert_of(manifests, scaler["spec"]["scaleTargetRef"]["name"])
        scalers.setdefault(own, []).append(scaler)
        if experts != {own}:
            yield f"{display_name(scaler)}: queries the demand of {', '.join(sorted(experts)) or 'no expert'}"
    for expert, several in scalers.items():
        for scaler in several if len(several) > 1 else ():
            if not all("gen_ai_request_model" in query for query in _queries(scaler)):
                yield f"{display_name(scaler)}: queries the demand of {expert} for all models, not only its own"


def _queries(scaler: Document) -> list[str]:
    return [str(trigger["metadata"].get("query")) for trigger in scaler["spec"]["triggers"]]


def _expert_of(manifests: Manifests, name: str) -> str:
    """The expert that a Deployment runs; its name without the prefix if its program is not one of ours."""
    workload = next((each for each in manifests.workloads if each.name == name), None)
    modules = [module_of(container) for container in workload.main_containers] if workload else []
    return next((each.removeprefix("experts.") for each in modules if each in PROGRAMS), name.removeprefix("expert-"))


def scalers_query_prometheus(manifests: Manifests) -> Iterator[str]:
    """KEDA's schema allows any metadata of a trigger; its prometheus scaler refuses other ones when it starts."""
    for scaler in manifests.of_kind("ScaledObject"):
        for trigger in scaler["spec"]["triggers"]:
            found = trigger["metadata"]
            if trigger["type"] != "prometheus":
                yield f"{display_name(scaler)}: its trigger is {trigger['type']}, not prometheus"
            if unknown := sorted(found.keys() - _METADATA):
                yield f"{display_name(scaler)}: the prometheus scaler has no {', '.join(unknown)}"
            invalid = [name for name, form in _FORMS.items() if not re.fullmatch(form, str(found.get(name, "")))]
            yield from (f"{display_name(scaler)}: {name} is {found.get(name)}" for name in invalid)


_FORMS = {"serverAddress": "https?://.+", "query": ".+", "threshold": r"[0-9]+(\.[0-9]+)?"}
_METADATA = {*_FORMS, "activationThreshold", "ignoreNullValues", "timeout", "namespace", "authModes", "unsafeSsl"}
"""Metadata that KEDA's prometheus scaler needs, and all that it knows."""


def scalers_have_a_fallback(manifests: Manifests) -> Iterator[str]:
    """Without Prometheus at least one replica remains, and no active replica is removed."""
    for scaler in manifests.of_kind("ScaledObject"):
        fallback = scaler["spec"].get("fallback", {})
        if fallback.get("replicas", 0) < 1:
            yield f"{display_name(scaler)}: has no fallback with at least one replica"
        if fallback.get("behavior") != "currentReplicasIfHigher":
            yield f"{display_name(scaler)}: its fallback may remove replicas: behavior is {fallback.get('behavior')}"

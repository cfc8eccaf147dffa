"""What scales experts asks for what orchestrators tell, and an expert that may go away says so."""

import re
from collections.abc import Iterator

from tests.manifests.deployment import House, Workload, called
from tests.manifests.environment import drawn

_DEMAND = re.compile(r'expert_queue_depth\{[^}]*expert="([\w-]+)"[^}]*\}')


def sleepy_experts_say_so(house: House) -> Iterator[str]:
    """An expert that is away for a while stays in the catalogue only if it said before that it may sleep."""
    for workload in house.staying:
        if workload.is_expert and not any(drawn(house, workload, "may_sleep")):
            for reason in _absences(house, workload):
                yield f"{workload}: may be away, since {reason}: set EXPERT_MAY_SLEEP"


def _absences(house: House, workload: Workload) -> Iterator[str]:
    """Why there may be no pod of it: it is scaled to none or to one, or rolls without a further one."""
    for scaler in house.of("ScaledObject"):
        least = scaler["spec"].get("minReplicaCount", 0)
        if scaler["spec"]["scaleTargetRef"]["name"] == workload.name and least < 2:
            yield f"{called(scaler)} has a minReplicaCount of {least}"
    if workload.spec.get("strategy", {}).get("rollingUpdate", {}).get("maxSurge") == 0:
        yield "its maxSurge is 0"


def experts_are_scaled_by_their_own_demand(house: House) -> Iterator[str]:
    for scaler in house.of("ScaledObject"):
        name = scaler["spec"]["scaleTargetRef"]["name"]
        queries = [str(trigger["metadata"].get("query")) for trigger in scaler["spec"]["triggers"]]
        asked = {expert for query in queries for expert in _DEMAND.findall(query)}
        if asked != {name.removeprefix("expert-")}:
            yield f"{called(scaler)}: asks for the demand of {', '.join(sorted(asked)) or 'nobody'}"


def scalers_have_a_fallback(house: House) -> Iterator[str]:
    """Without Prometheus the number of replicas stays above zero, and no replica that works is taken away."""
    for scaler in house.of("ScaledObject"):
        fallback = scaler["spec"].get("fallback", {})
        if fallback.get("replicas", 0) < 1:
            yield f"{called(scaler)}: has no fallback of a replica or more"
        if fallback.get("behavior") != "currentReplicasIfHigher":
            yield f"{called(scaler)}: its fallback takes replicas away: behavior is {fallback.get('behavior')}"

"""What scales experts asks for what orchestrators tell, and an expert that may go away says so."""

import re
from collections.abc import Iterator

from tests.manifests.environment import drawn
from tests.manifests.house import House, Workload, called

_DEMAND = re.compile(r'expert_queue_depth\{[^}]*expert="([\w-]+)"[^}]*\}')


def sleepy_experts_say_so(house: House) -> Iterator[str]:
    """Scaled to zero, an expert stays in the catalogue only if it said before that it may sleep."""
    for scaler in house.of("ScaledObject"):
        workload = _target(house, scaler["spec"]["scaleTargetRef"]["name"])
        if workload is None or not workload.is_expert:
            continue
        sleepy = scaler["spec"].get("minReplicaCount", 0) == 0
        if sleepy != any(drawn(house, workload, "may_sleep")):
            yield f"{called(scaler)}: minReplicaCount and EXPERT_MAY_SLEEP of {workload} contradict each other"


def experts_are_scaled_by_their_own_demand(house: House) -> Iterator[str]:
    for scaler in house.of("ScaledObject"):
        name = scaler["spec"]["scaleTargetRef"]["name"]
        queries = [str(trigger["metadata"].get("query")) for trigger in scaler["spec"]["triggers"]]
        asked = {expert for query in queries for expert in _DEMAND.findall(query)}
        if asked != {name.removeprefix("expert-")}:
            yield f"{called(scaler)}: asks for the demand of {', '.join(sorted(asked)) or 'nobody'}"


def scalers_have_a_fallback(house: House) -> Iterator[str]:
    """Without Prometheus the number of replicas stays above zero."""
    for scaler in house.of("ScaledObject"):
        if scaler["spec"].get("fallback", {}).get("replicas", 0) < 1:
            yield f"{called(scaler)}: has no fallback of a replica or more"


def _target(house: House, name: str) -> Workload | None:
    return next((workload for workload in house.staying if workload.name == name), None)

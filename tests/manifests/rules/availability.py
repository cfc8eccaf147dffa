"""What drains, rolls and spreads: nothing accepted is lost, and no pod waits for a GPU that its predecessor holds."""

from collections.abc import Iterator

from tests.manifests.deployment import GPU, Container, Document, House, Workload, called, listed, selects
from tests.manifests.environment import drawn

POOL = "hugginggpt.dev/pool"
LARGE = ("expert-video", "expert-diffusion")
"""Experts whose models need large GPUs."""


def every_workload_has_a_budget(house: House) -> Iterator[str]:
    """One PodDisruptionBudget each, which lets a node be drained."""
    for workload in house.staying:
        budgets = [b for b in house.of("PodDisruptionBudget") if selects(b["spec"]["selector"], workload.labels)]
        if len(budgets) != 1:
            yield f"{workload}: has {len(budgets)} PodDisruptionBudgets"
        yield from (f"{workload}: its budget lets no pod go" for b in budgets if b["spec"].get("maxUnavailable") != 1)


def budgets_are_of_one(house: House) -> Iterator[str]:
    for budget in house.of("PodDisruptionBudget"):
        meant = house.selected(budget["spec"]["selector"])
        if len(meant) != 1:
            yield f"{called(budget)}: is of {len(meant)} workloads"


def calls_may_end(house: House) -> Iterator[str]:
    """A pod is left the time to drain, and an expert's drain is as long as a call may be."""
    calls = [seconds for workload in house.staying for seconds in drawn(house, workload, "attempt_seconds")]
    for workload in house.staying:
        for drain in drawn(house, workload, "drain_seconds"):
            pause = max(_pause(container) for container in workload.lasting)
            grace = workload.pod.get("terminationGracePeriodSeconds", 30)
            if pause < 1:
                yield f"{workload}: does not wait before it stops, while it is still called"
            if grace <= pause + drain:
                yield f"{workload}: is killed after {grace} s, and may take {pause} s and then {drain:g} s"
            if workload.is_expert and drain < max(calls, default=0):
                yield f"{workload}: drains for {drain:g} s, and a call may take {max(calls):g} s"


def _pause(container: Container) -> int:
    return int(container.spec.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0))


def rollouts_are_safe(house: House) -> Iterator[str]:
    for workload in house.staying:
        if workload.kind != "Deployment":
            continue
        rolling = workload.spec.get("strategy", {}).get("rollingUpdate", {})
        given = rolling.get("maxSurge"), rolling.get("maxUnavailable")
        if workload.wants_gpu and given != (0, 1):
            yield f"{workload}: a new pod would wait for the GPU of an old one: maxSurge, maxUnavailable are {given}"
        if not workload.wants_gpu and given not in {(1, 0), (None, None)}:
            yield f"{workload}: there may be no pod while it rolls: maxSurge, maxUnavailable are {given}"


def gpus_are_asked_for_whole(house: House) -> Iterator[str]:
    for workload in house.workloads:
        if not workload.wants_gpu:
            continue
        if workload.pod.get("runtimeClassName") != "nvidia":
            yield f"{workload}: its runtimeClassName is not nvidia"
        pool = "large" if workload.name in LARGE else "small"
        if workload.pod.get("nodeSelector", {}).get(POOL) != pool:
            yield f"{workload}: it does not select the nodes with {POOL}={pool}"
        if not any(
            t.get("key") == GPU and t.get("effect") == "NoSchedule" for t in listed(workload.pod, "tolerations")
        ):
            yield f"{workload}: does not tolerate the taint {GPU}"


def pods_are_spread(house: House) -> Iterator[str]:
    for workload in house.staying:
        spread = listed(workload.pod, "topologySpreadConstraints")
        if not spread and workload.is_ours:
            yield f"{workload}: nothing spreads its pods"
        for constraint in spread:
            if _counted(house, workload, constraint) != {workload.name}:
                yield f"{workload}: its pods are spread among {_counted(house, workload, constraint)}"


def _counted(house: House, workload: Workload, constraint: Document) -> set[str]:
    """Whose pods are counted: those selected that are like these in some labels."""
    keys = [str(key) for key in constraint.get("matchLabelKeys") or ()]
    found = house.selected(constraint["labelSelector"]) if "labelSelector" in constraint else ()
    return {other.name for other in found if all(other.labels.get(key) == workload.labels.get(key) for key in keys)}


def priorities_are_known(house: House) -> Iterator[str]:
    for workload in house.workloads:
        name = workload.pod.get("priorityClassName")
        if not name or not house.named("PriorityClass", name):
            yield f"{workload}: there is no PriorityClass {name}"

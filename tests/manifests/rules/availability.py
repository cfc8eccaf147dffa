"""Draining, rollouts, disruption budgets, GPU scheduling and topology spread."""

from collections.abc import Iterator

from tests.manifests.deployment import GPU, Container, Document, Manifests, Workload, display_name, get_list, selects
from tests.manifests.environment import setting_values
from tests.manifests.scheduling import fits_node

POOL = "hugginggpt.dev/pool"
LARGE = ("expert-video", "expert-diffusion")
"""Experts whose models need nodes with large GPUs."""


def workloads_have_disruption_budgets(manifests: Manifests) -> Iterator[str]:
    """Each workload has one PodDisruptionBudget that allows nodes to be drained."""
    for workload in manifests.long_running:
        budgets = [
            b for b in manifests.of_kind("PodDisruptionBudget") if selects(b["spec"]["selector"], workload.labels)
        ]
        if len(budgets) != 1:
            yield f"{workload}: has {len(budgets)} PodDisruptionBudgets"
        yield from (
            f"{workload}: its budget allows no eviction" for b in budgets if b["spec"].get("maxUnavailable") != 1
        )


def disruption_budgets_select_one_workload(manifests: Manifests) -> Iterator[str]:
    for budget in manifests.of_kind("PodDisruptionBudget"):
        workloads = manifests.workloads_matching(budget["spec"]["selector"])
        if len(workloads) != 1:
            yield f"{display_name(budget)}: selects {len(workloads)} workloads"


def grace_periods_cover_draining(manifests: Manifests) -> Iterator[str]:
    """The grace period covers preStop and drain; an expert drains for at least the longest call."""
    calls = [
        seconds
        for workload in manifests.long_running
        for seconds in setting_values(manifests, workload, "attempt_seconds")
    ]
    for workload in manifests.long_running:
        for drain in setting_values(manifests, workload, "drain_seconds"):
            pause = max(_pre_stop_seconds(container) for container in workload.main_containers)
            grace = workload.pod.get("terminationGracePeriodSeconds", 30)
            if pause < 1:
                yield f"{workload}: has no preStop sleep, so it stops while it still receives calls"
            if grace <= pause + drain:
                yield f"{workload}: is killed after {grace} s, but needs {pause} s of preStop and {drain:g} s to drain"
            if workload.is_expert and drain < max(calls, default=0):
                yield f"{workload}: drains for {drain:g} s, but a call may take {max(calls):g} s"


def _pre_stop_seconds(container: Container) -> int:
    return int(container.spec.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0))


def rollouts_are_safe(manifests: Manifests) -> Iterator[str]:
    for workload in manifests.long_running:
        if workload.kind != "Deployment":
            continue
        rolling = workload.spec.get("strategy", {}).get("rollingUpdate", {})
        strategy = rolling.get("maxSurge"), rolling.get("maxUnavailable")
        if workload.requests_gpu and strategy != (0, 1):
            yield f"{workload}: a new pod would wait for the GPU of an old one: maxSurge, maxUnavailable are {strategy}"
        if not workload.requests_gpu and strategy not in {(1, 0), (None, None)}:
            yield f"{workload}: no pod may be available during a rollout: maxSurge, maxUnavailable are {strategy}"


def gpu_pods_select_gpu_nodes(manifests: Manifests) -> Iterator[str]:
    for workload in manifests.workloads:
        if not workload.requests_gpu:
            continue
        if workload.pod.get("runtimeClassName") not in (None, "nvidia"):
            yield f"{workload}: its runtimeClassName is neither absent nor nvidia"
        fits_small, fits_any = (fits_node(workload.pod, labels) for labels in ({POOL: "small"}, {}))
        if not fits_any:
            yield f"{workload}: runs on no node without the label {POOL}"
        if fits_small == (workload.name in LARGE):
            yield f"{workload}: {'may run' if fits_small else 'never runs'} on nodes with {POOL}=small"
        if not any(
            t.get("key") == GPU and t.get("effect") == "NoSchedule" for t in get_list(workload.pod, "tolerations")
        ):
            yield f"{workload}: does not tolerate the taint {GPU}"


def pods_are_spread(manifests: Manifests) -> Iterator[str]:
    for workload in manifests.long_running:
        spread = get_list(workload.pod, "topologySpreadConstraints")
        if not spread and workload.is_ours:
            yield f"{workload}: has no topologySpreadConstraints"
        for constraint in spread:
            if _spread_workloads(manifests, workload, constraint) != {workload.name}:
                yield f"{workload}: its pods are spread among {_spread_workloads(manifests, workload, constraint)}"


def _spread_workloads(manifests: Manifests, workload: Workload, constraint: Document) -> set[str]:
    """Names of the workloads whose pods a topology spread constraint counts."""
    keys = [str(key) for key in constraint.get("matchLabelKeys") or ()]
    found = manifests.workloads_matching(constraint["labelSelector"]) if "labelSelector" in constraint else ()
    return {other.name for other in found if all(other.labels.get(key) == workload.labels.get(key) for key in keys)}


def priority_classes_exist(manifests: Manifests) -> Iterator[str]:
    for workload in manifests.workloads:
        name = workload.pod.get("priorityClassName")
        if not name or not manifests.find("PriorityClass", name):
            yield f"{workload}: there is no PriorityClass {name}"

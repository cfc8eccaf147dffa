"""Pods of the overlays fit on the nodes that the pages recommend, as a simulated scheduler places them."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.manifests.deployment import Document, Manifests, Workload
from tests.manifests.rendering import render_overlay
from tests.manifests.scheduling import Node, Schedule, schedule

SMALL = ("expert-text", "expert-vision", "expert-audio")
LARGE = ("expert-video", "expert-diffusion")
TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
POOL = "hugginggpt.dev/pool"


def node(name: str, cpu: str, memory: str, gpus: int = 0, *, tainted: bool = False, pool: str = "") -> Node:
    allocatable = {"cpu": cpu, "memory": memory, "ephemeral-storage": "100Gi", "pods": "110"}
    labels = {POOL: pool} if pool else {}
    return Node(name, allocatable | ({"nvidia.com/gpu": str(gpus)} if gpus else {}), labels, [TAINT] if tainted else [])


CORE_NODES = [node(f"core-{number}", "3900m", "14Gi") for number in range(3)]
SMALL_NODE = node("small", "7900m", "28Gi", 1, tainted=True, pool="small")
LARGE_NODE = node("large", "11900m", "80Gi", 1, tainted=True, pool="large")


@pytest.mark.needs("kubectl")
def test_local_overlay_fits_on_one_machine() -> None:
    assert schedule(render_overlay("local"), [node("kind", "2", "4Gi")]).pending == []


@pytest.mark.needs("kubectl")
def test_production_starts_without_gpu_nodes() -> None:
    assert schedule(render_overlay("production"), CORE_NODES).pending == []


@pytest.mark.needs("kubectl")
@pytest.mark.parametrize("expert", [*SMALL, *LARGE])
def test_each_expert_runs_on_one_small_and_one_large_gpu_node(expert: str) -> None:
    result = schedule(render_overlay("production"), [*CORE_NODES, SMALL_NODE, LARGE_NODE], [expert])
    assert result.pending == []


@pytest.mark.needs("kubectl")
def test_two_small_experts_share_a_small_and_a_large_node() -> None:
    nodes = [*CORE_NODES, LARGE_NODE, SMALL_NODE]
    result = schedule(render_overlay("production"), nodes, ["expert-text", "expert-vision"])
    assert {*result.nodes_of("expert-text"), *result.nodes_of("expert-vision")} == {"small", "large"}


@pytest.mark.needs("kubectl")
@pytest.mark.parametrize("expert", SMALL)
def test_small_expert_prefers_the_small_node(expert: str) -> None:
    result = schedule(render_overlay("production"), [*CORE_NODES, LARGE_NODE, SMALL_NODE], [expert])
    assert result.nodes_of(expert) == ["small"]


@pytest.mark.needs("kubectl")
@pytest.mark.parametrize("expert", LARGE)
def test_large_expert_waits_if_only_small_nodes_are_free(expert: str) -> None:
    assert schedule(render_overlay("production"), [*CORE_NODES, SMALL_NODE], [expert]).pending == [expert]


@pytest.mark.needs("kubectl")
def test_all_experts_run_on_one_unlabelled_node_with_eight_gpus() -> None:
    machine = node("machine", "63", "480Gi", 8, tainted=True)
    result = schedule(render_overlay("production"), [*CORE_NODES, machine], [*SMALL, *LARGE])
    assert result.pending == []


@pytest.mark.needs("kubectl")
def test_eight_gpus_overlay_uses_every_gpu_of_one_machine() -> None:
    machine = node("machine", "12", "55Gi", 8)
    result = schedule(render_overlay("eight-gpus"), [machine])
    assert result.pending == []
    assert len([name for name, _ in result.placed if name in {*SMALL, *LARGE}]) == 8


@pytest.mark.needs("kubectl")
def test_one_gpu_overlay_runs_where_the_gpu_is_offered_as_three() -> None:
    assert schedule(render_overlay("one-gpu"), [node("machine", "5", "15Gi", 3)]).pending == []


@pytest.mark.needs("kubectl")
def test_one_gpu_overlay_has_pending_pods_where_the_gpu_is_not_shared() -> None:
    assert len(schedule(render_overlay("one-gpu"), [node("machine", "5", "15Gi", 1)]).pending) == 2


def workload(requests: Mapping[str, str], **pod: Any) -> Workload:
    container: Document = {"name": "server", "image": "x", "resources": {"requests": dict(requests)}}
    return Workload(
        {
            "kind": "Deployment",
            "metadata": {"name": "w"},
            "spec": {"template": {"spec": {"containers": [container], **pod}}},
        }
    )


def test_pods_on_one_node_share_what_it_has() -> None:
    result = Schedule([node("a", "1", "1Gi")])
    result.add(workload({"cpu": "400m"}), 3)
    assert len(result.placed) == 2
    assert result.pending == ["w"]


def test_init_container_counts_if_it_needs_more() -> None:
    init = {"name": "init", "image": "x", "resources": {"requests": {"cpu": "2"}}}
    result = Schedule([node("a", "1", "1Gi")])
    result.add(workload({"cpu": "400m"}, initContainers=[init]))
    assert result.pending == ["w"]


@pytest.mark.parametrize(
    ("toleration", "is_placed"),
    [
        ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "nvidia.com/gpu", "value": "present"}, True),
        ({"key": "nvidia.com/gpu", "value": "other"}, False),
        ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoExecute"}, False),
    ],
)
def test_taint_needs_a_matching_toleration(toleration: Document, *, is_placed: bool) -> None:
    result = Schedule([node("a", "1", "1Gi", 1, tainted=True)])
    result.add(workload({}, tolerations=[toleration]))
    assert bool(result.placed) == is_placed


def test_scaler_without_minimum_starts_nothing() -> None:
    scaler = {"kind": "ScaledObject", "metadata": {"name": "w"}, "spec": {"scaleTargetRef": {"name": "w"}}}
    assert schedule(Manifests((workload({}).document, scaler)), [node("a", "1", "1Gi")]).placed == []

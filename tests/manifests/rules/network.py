"""NetworkPolicies allow exactly the documented calls."""

from collections.abc import Iterator
from ipaddress import IPv4Network, IPv6Network, ip_network

from tests.manifests.deployment import RAY_JOB, Document, Manifests, Workload, display_name, selects
from tests.manifests.network import Edge, Network, ports

Block = IPv4Network | IPv6Network

PROXY_OF = "gateway.networking.k8s.io/gateway-name"
"""Label of the proxy pods that a Gateway API controller starts for a Gateway."""

GRPC, HTTP, METRICS, DNS = 50051, 8080, 9464, 53

COLLECTOR, PROMETHEUS, RAY = "opentelemetry-collector", "prometheus", "bulk-ray"

ALLOWED_CALLS = {
    "gateway": {"orchestrator", "selector", "s3", "postgres"},
    "orchestrator": {"orchestrator", "planner", "selector", "responder", "experts", "s3", "postgres"},
    "planner": {"selector"},
    "selector": {"experts", "s3"},
    "responder": set[str](),
    "experts": {"s3"},
    "prefetch": {"s3"},
    "bulk": {"s3"},
    RAY: {"s3", RAY},
    "grafana": {PROMETHEUS, "jaeger"},
    COLLECTOR: {"jaeger"},
}
"""Callees inside the cluster by caller, as in the table of k8s/base/README.md.

In addition all pods call the collector, and Prometheus calls all pods."""

PORTS = {"postgres": 5432, "s3": 8333, COLLECTOR: 4317, PROMETHEUS: 9090, "jaeger": 16686}
"""Ports of callees without gRPC."""

PORTS_BY_CALLER = {(COLLECTOR, "jaeger"): 4317}
"""Ports that depend on caller and callee."""

METRICS_PORTS = {COLLECTOR: 8888}
"""Metrics ports that differ from METRICS."""

EXTERNAL_CALLERS = {"gateway", "planner", "selector", "responder", "expert-llm", "expert-remote", "expert-served"}
"""Workloads that may call any external address: files and webhooks, an LLM, the Hub. So may prefetch Jobs."""

METADATA = ("169.254.0.0/16", "168.63.129.16/32", "fe80::/10")
"""Cloud metadata services, which return a node's credentials: forbidden for all pods."""

PRIVATE = (*METADATA, "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
"""Private networks: forbidden for the gateway, which calls addresses that users supply."""

IDENTITIES: dict[str, tuple[tuple[str, int], ...]] = {
    "iam.gke.io/gcp-service-account": (("169.254.169.254/32", 80), ("169.254.169.252/32", 988)),
    "eks.amazonaws.com/role-arn": (("169.254.170.23/32", 80),),
    "azure.workload.identity/client-id": (("20.190.128.0/18", 443), ("40.126.0.0/18", 443)),
}
"""Addresses and ports that give a pod its own cloud credentials, by the annotation of its ServiceAccount."""

EXTERNAL_STORES = {"s3", "postgres"}
"""Stores that may be outside the cluster; their callers may then call the store's address block."""


def traffic_is_denied_by_default(manifests: Manifests) -> Iterator[str]:
    """A pod that no other policy selects has no traffic."""
    for policy in manifests.of_kind("NetworkPolicy"):
        spec = policy["spec"]
        closed = not spec.get("ingress") and not spec.get("egress")
        if not spec.get("podSelector") and set(spec.get("policyTypes") or []) == {"Ingress", "Egress"} and closed:
            return
    yield "NetworkPolicy: none denies everything to all pods"


def internal_calls_match_the_table(manifests: Manifests) -> Iterator[str]:
    expected, found = expected_edges(manifests), Network(manifests).edges()
    yield from (f"the network allows {edge}, which is not documented" for edge in sorted(found - expected))
    yield from (f"the network blocks {edge}" for edge in sorted(expected - found))


def expected_edges(manifests: Manifests) -> set[Edge]:
    """Edges that ALLOWED_CALLS permits between the workloads of the manifests."""
    return {
        Edge(caller.name, callee.name, port)
        for caller in manifests.workloads
        for callee in manifests.workloads
        if callee.is_long_running or callee.kind == RAY_JOB
        for port in _ports_between(caller, callee)
    }


def _ports_between(caller: Workload, callee: Workload) -> Iterator[int]:
    source, target = role(caller), role(callee)
    if source == target == RAY:
        yield from ports(callee)
    elif target in ALLOWED_CALLS.get(source, set()) | {COLLECTOR}:
        yield PORTS_BY_CALLER.get((source, target)) or PORTS.get(target, GRPC)
    if source == PROMETHEUS:
        yield from _metrics_ports(callee)


def _metrics_ports(workload: Workload) -> set[int]:
    """Ports that Prometheus scrapes."""
    if workload.is_ours:
        return {METRICS}
    return {METRICS_PORTS[role(workload)]} if role(workload) in METRICS_PORTS else set()


def role(workload: Workload) -> str:
    """Key of a workload in ALLOWED_CALLS."""
    if workload.is_expert:
        return "experts"
    return "prefetch" if "prefetch" in workload.name else str(workload.labels.get("app.kubernetes.io/name"))


def external_ingress_is_limited(manifests: Manifests) -> Iterator[str]:
    """Only the gateway's ports and Prometheus are open to external peers; metrics ports only to selected pods."""
    network = Network(manifests)
    for workload in manifests.long_running:
        endpoints = {GRPC, HTTP} if workload.name == "gateway" else {PORTS[PROMETHEUS]} & ports(workload)
        metrics = _metrics_ports(workload)
        found: set[int] = set()
        for peer, open_ports in network.external_peers("Ingress", workload):
            found |= (open_ports or ports(workload)) & ports(workload)
            if metrics & open_ports and "podSelector" not in peer:
                yield f"{workload}: any pod may read its metrics"
        allowed = endpoints | metrics
        yield from (f"{workload}: is open to external peers on {port}" for port in sorted(found - allowed))
        yield from (f"{workload}: is closed to external peers on {port}" for port in sorted(allowed - found))


def pods_may_query_dns(manifests: Manifests) -> Iterator[str]:
    network = Network(manifests)
    for workload in manifests.workloads:
        if not any(DNS in found for _, found in network.external_peers("Egress", workload)):
            yield f"{workload}: cannot query DNS"


def external_egress_is_limited(manifests: Manifests) -> Iterator[str]:
    """Few workloads may call any address; callers of external stores and the collector may call narrow blocks."""
    for workload, peer, open_ports in _external_egress(manifests):
        blocks = _blocks(peer)
        calls_stores = bool(EXTERNAL_STORES & ALLOWED_CALLS.get(role(workload), set()))
        may_call_blocks = calls_stores or role(workload) == COLLECTOR
        are_narrow = blocks and all(_is_narrow(block) for block, _ in blocks)
        allowed = may_call_any_address(workload) or (may_call_blocks and are_narrow)
        if not allowed:
            yield f"{workload}: may call {peer or 'any address'} on {sorted(open_ports) or 'all ports'}"
        if blocks and not open_ports:
            yield f"{workload}: may call {peer or 'any address'} on all ports"


def may_call_any_address(workload: Workload) -> bool:
    return workload.name in EXTERNAL_CALLERS or role(workload) == "prefetch"


def collectors_may_export_traces(manifests: Manifests) -> Iterator[str]:
    """A collector needs egress to export traces."""
    with_egress = {workload.name for workload, _, _ in _external_egress(manifests)}
    for workload in manifests.long_running:
        if role(workload) == COLLECTOR and workload.name not in with_egress:
            yield f"{workload}: cannot export traces"


def proxies_reach_the_gateway(manifests: Manifests) -> Iterator[str]:
    """External clients reach the proxy pods of a Gateway, and the proxy reaches the gateway's ports."""
    for gateway in manifests.of_kind("Gateway"):
        proxy = _proxy(gateway)
        network = Network(Manifests((*manifests.documents, proxy.document)))
        edges = network.edges()
        if not any(not peer for peer, _ in network.external_peers("Ingress", proxy)):
            yield f"{display_name(gateway)}: no client may call its proxy"
        for port in (HTTP, GRPC):
            if Edge(proxy.name, "gateway", port) not in edges:
                yield f"{display_name(gateway)}: its proxy cannot call the gateway on {port}"


def _proxy(gateway: Document) -> Workload:
    metadata = {"name": "proxy", "namespace": gateway["metadata"].get("namespace"), "labels": _proxy_labels(gateway)}
    return Workload({"kind": "Pod", "metadata": metadata, "spec": {}})


def _proxy_labels(gateway: Document) -> dict[str, str]:
    return {PROXY_OF: str(gateway["metadata"]["name"])}


def metadata_addresses_are_blocked(manifests: Manifests) -> Iterator[str]:
    """No pod reaches metadata services, except the one that gives it its own identity.

    The gateway, which calls addresses of users, reaches no private network either.
    """
    for workload, peer, open_ports in _external_egress(manifests):
        forbidden = PRIVATE if workload.name == "gateway" else METADATA
        own = {address for address, port in identity_endpoints(manifests, workload) if open_ports == {port}}
        yield from (f"{workload}: may call {each}" for each in _reachable_networks(peer, forbidden) if each not in own)


def identities_reach_their_endpoints(manifests: Manifests) -> Iterator[str]:
    """A pod whose ServiceAccount has a cloud identity reaches what gives it credentials."""
    network = Network(manifests)
    for workload in manifests.workloads:
        found = {
            (str(block), port)
            for peer, open_ports in network.external_peers("Egress", workload)
            for block, _ in _blocks(peer)
            for port in open_ports
        }
        for address, port in identity_endpoints(manifests, workload):
            if (address, port) not in found:
                yield f"{workload}: cannot get credentials at {address} on {port}"


def identity_endpoints(manifests: Manifests, workload: Workload) -> tuple[tuple[str, int], ...]:
    """Addresses and ports that give a workload's pods their cloud credentials; none without a cloud identity."""
    account = manifests.find("ServiceAccount", str(workload.pod.get("serviceAccountName"))) or {"metadata": {}}
    annotations = account["metadata"].get("annotations") or {}
    return tuple(endpoint for name in annotations for endpoint in IDENTITIES.get(name, ()))


def _external_egress(manifests: Manifests) -> Iterator[tuple[Workload, Document, set[int]]]:
    """Workloads with the external peers and ports they may call, except DNS and the collector."""
    network = Network(manifests)
    for workload in manifests.workloads:
        for peer, open_ports in network.external_peers("Egress", workload):
            if not open_ports or open_ports - {DNS, PORTS[COLLECTOR]}:
                yield workload, peer, open_ports


def _reachable_networks(peer: Document, networks: tuple[str, ...]) -> Iterator[str]:
    """Given networks that a peer's blocks include, and blocks inside METADATA."""
    for block, exceptions in _blocks(peer):
        for network in map(ip_network, networks):
            if _within(network, block) and not any(_within(network, each) for each in exceptions):
                yield str(network)
    yield from (str(block) for block, _ in _blocks(peer) if any(_within(block, ip_network(each)) for each in METADATA))


def _blocks(peer: Document) -> list[tuple[Block, list[Block]]]:
    """Address blocks of a peer, each with its exceptions."""
    if not peer:
        return [(ip_network("0.0.0.0/0"), []), (ip_network("::/0"), [])]
    if "ipBlock" not in peer:
        return []
    return [(ip_network(peer["ipBlock"]["cidr"]), [ip_network(each) for each in peer["ipBlock"].get("except") or ()])]


def _is_narrow(block: Block) -> bool:
    return block.prefixlen >= (16 if block.version == 4 else 48)


def _within(small: Block, large: Block) -> bool:
    match small, large:
        case (IPv4Network(), IPv4Network()) | (IPv6Network(), IPv6Network()):
            return small.subnet_of(large)  # type: ignore[arg-type]
    return False


def network_policies_select_pods(manifests: Manifests) -> Iterator[str]:
    pods = [*(workload.labels for workload in manifests.workloads), *map(_proxy_labels, manifests.of_kind("Gateway"))]
    for policy in manifests.of_kind("NetworkPolicy"):
        selector = policy["spec"].get("podSelector") or {}
        if not any(selects(selector, labels) for labels in pods):
            yield f"NetworkPolicy/{policy['metadata']['name']}: selects no pods"

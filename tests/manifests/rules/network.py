"""The network lets through the calls that the house is made of, and no others."""

from collections.abc import Iterator
from ipaddress import IPv4Network, IPv6Network, ip_network

from tests.manifests.deployment import Document, House, Workload, called, selects
from tests.manifests.network import Edge, Network, ports

Block = IPv4Network | IPv6Network

PROXY_OF = "gateway.networking.k8s.io/gateway-name"
"""Label of the pods that a controller of the Gateway API starts beside a Gateway."""

GRPC, HTTP, METRICS, DNS = 50051, 8080, 9464, 53

COLLECTOR, PROMETHEUS = "opentelemetry-collector", "prometheus"

ARROWS = {
    "gateway": {"orchestrator", "selector", "s3", "postgres"},
    "orchestrator": {"orchestrator", "planner", "selector", "responder", "experts", "s3", "postgres"},
    "planner": {"selector"},
    "selector": {"experts", "s3"},
    "responder": set[str](),
    "experts": {"s3"},
    "prefetch": {"s3"},
    "grafana": {PROMETHEUS, "jaeger"},
    COLLECTOR: {"jaeger"},
}
"""Who calls whom inside the house, as k8s/README.md has it; all call the collector of traces, and Prometheus all for
their metrics."""

PORTS = {"postgres": 5432, "s3": 8333, COLLECTOR: 4317, PROMETHEUS: 9090, "jaeger": 16686}
"""Of those that are called on another port than gRPC's."""

TRACED = {(COLLECTOR, "jaeger"): 4317}
"""And of those that have another for one who calls them."""

MEASURED = {COLLECTOR: 8888}
"""Whose metrics are not at the port of our own servers."""

ABROAD = {"gateway", "planner", "selector", "responder", "expert-remote", "expert-served"}
"""Who may call any address outside: files and webhooks, an LLM, the Hub. So may the Jobs that fetch weights."""

METADATA = ("169.254.0.0/16", "168.63.129.16/32", "fe80::/10")
"""Where clouds hand out a node's credentials: nobody's business."""

PRIVATE = (*METADATA, "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
"""Neighbours: whoever calls addresses that users give has no business there either."""

STORED_OUTSIDE = {"s3", "postgres"}
"""What may lie outside: whoever calls one here may call the block of one there."""


def all_is_denied_first(house: House) -> Iterator[str]:
    """A pod that no other policy means gets and sends nothing."""
    for policy in house.of("NetworkPolicy"):
        spec = policy["spec"]
        closed = not spec.get("ingress") and not spec.get("egress")
        if not spec.get("podSelector") and set(spec.get("policyTypes") or []) == {"Ingress", "Egress"} and closed:
            return
    yield "NetworkPolicy: none denies everything to all pods"


def calls_inside_are_the_documented_ones(house: House) -> Iterator[str]:
    wanted, found = expected(house), Network(house).edges()
    yield from (f"the network lets through {edge}, which nobody calls" for edge in sorted(found - wanted))
    yield from (f"the network stops {edge}" for edge in sorted(wanted - found))


def expected(house: House) -> set[Edge]:
    """What ARROWS mean for the workloads that there are."""
    return {
        Edge(caller.name, called.name, port)
        for caller in house.workloads
        for called in house.staying
        for port in _ports_between(caller, called)
    }


def _ports_between(caller: Workload, called: Workload) -> Iterator[int]:
    who, whom = role(caller), role(called)
    if whom in ARROWS.get(who, set()) | {COLLECTOR}:
        yield TRACED.get((who, whom)) or PORTS.get(whom, GRPC)
    if who == PROMETHEUS:
        yield from _measured(called)


def _measured(workload: Workload) -> set[int]:
    """Where Prometheus reads it."""
    return {METRICS} if workload.is_ours else {MEASURED[role(workload)]} if role(workload) in MEASURED else set()


def role(workload: Workload) -> str:
    """What it is among the arrows."""
    if workload.is_expert:
        return "experts"
    return "prefetch" if "prefetch" in workload.name else str(workload.labels.get("app.kubernetes.io/name"))


def doors_are_the_documented_ones(house: House) -> Iterator[str]:
    """From outside the gateway is called; Prometheus calls all for their metrics, and KEDA asks ours."""
    network = Network(house)
    for workload in house.staying:
        doors = {GRPC, HTTP} if workload.name == "gateway" else {PORTS[PROMETHEUS]} & ports(workload)
        metrics = _measured(workload)
        found: set[int] = set()
        for peer, open_ports in network.peers_outside("Ingress", workload):
            found |= (open_ports or ports(workload)) & ports(workload)
            if metrics & open_ports and "podSelector" not in peer:
                yield f"{workload}: anyone may read its metrics"
        allowed = doors | metrics
        yield from (f"{workload}: is open to outside on {port}" for port in sorted(found - allowed))
        yield from (f"{workload}: is closed to outside on {port}" for port in sorted(allowed - found))


def names_can_be_resolved(house: House) -> Iterator[str]:
    network = Network(house)
    for workload in house.workloads:
        if not any(DNS in found for _, found in network.peers_outside("Egress", workload)):
            yield f"{workload}: cannot ask DNS"


def few_call_abroad(house: House) -> Iterator[str]:
    """Anywhere is for a few; who has a store or a database outside, or sends traces there, may call narrow blocks."""
    for workload, peer, open_ports in _abroad(house):
        blocks = _blocks(peer)
        sends = role(workload) == COLLECTOR or bool(STORED_OUTSIDE & ARROWS.get(role(workload), set()))
        allowed = may_call_anywhere(workload) or (sends and blocks and all(_is_narrow(block) for block, _ in blocks))
        if not allowed:
            yield f"{workload}: may call {peer or 'anyone'} on {sorted(open_ports) or 'all ports'}"
        if blocks and not open_ports:
            yield f"{workload}: may call {peer or 'anyone'} on all ports"


def may_call_anywhere(workload: Workload) -> bool:
    return workload.name in ABROAD or role(workload) == "prefetch"


def traces_have_a_way_out(house: House) -> Iterator[str]:
    """A collector that nothing lets out keeps traces to itself, whatever exporter it is given."""
    let_out = {workload.name for workload, _, _ in _abroad(house)}
    for workload in house.staying:
        if role(workload) == COLLECTOR and workload.name not in let_out:
            yield f"{workload}: may send traces nowhere"


def proxies_reach_the_gateway(house: House) -> Iterator[str]:
    """Where the proxy of a Gateway runs beside it, the world reaches it and it reaches the doors."""
    for gateway in house.of("Gateway"):
        proxy = _proxy(gateway)
        network = Network(House((*house.documents, proxy.document)))
        edges = network.edges()
        if not any(not peer for peer, _ in network.peers_outside("Ingress", proxy)):
            yield f"{called(gateway)}: nobody may call its proxy"
        for port in (HTTP, GRPC):
            if Edge(proxy.name, "gateway", port) not in edges:
                yield f"{called(gateway)}: its proxy cannot call the gateway on {port}"


def _proxy(gateway: Document) -> Workload:
    metadata = {"name": "proxy", "namespace": gateway["metadata"].get("namespace"), "labels": _proxy_labels(gateway)}
    return Workload({"kind": "Pod", "metadata": metadata, "spec": {}})


def _proxy_labels(gateway: Document) -> dict[str, str]:
    return {PROXY_OF: str(gateway["metadata"]["name"])}


def nobody_asks_for_metadata(house: House) -> Iterator[str]:
    """Nor has the gateway, which is given addresses by users, a way to neighbours."""
    for workload, peer, _ in _abroad(house):
        forbidden = PRIVATE if workload.name == "gateway" else METADATA
        yield from (f"{workload}: may call {near}" for near in _covered(peer, forbidden))


def _abroad(house: House) -> Iterator[tuple[Workload, Document, set[int]]]:
    """What may be called outside the house, beside DNS and the collector."""
    network = Network(house)
    for workload in house.workloads:
        for peer, open_ports in network.peers_outside("Egress", workload):
            if not open_ports or open_ports - {DNS, PORTS[COLLECTOR]}:
                yield workload, peer, open_ports


def _covered(peer: Document, networks: tuple[str, ...]) -> Iterator[str]:
    """Networks that lie in a peer's blocks and are not left out of them, and blocks that are of metadata alone."""
    for block, left_out in _blocks(peer):
        for near in map(ip_network, networks):
            if _within(near, block) and not any(_within(near, each) for each in left_out):
                yield str(near)
    yield from (str(block) for block, _ in _blocks(peer) if any(_within(block, ip_network(each)) for each in METADATA))


def _blocks(peer: Document) -> list[tuple[Block, list[Block]]]:
    """A peer's addresses, each block with what is left out of it."""
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


def policies_mean_someone(house: House) -> Iterator[str]:
    pods = [*(workload.labels for workload in house.workloads), *map(_proxy_labels, house.of("Gateway"))]
    for policy in house.of("NetworkPolicy"):
        selector = policy["spec"].get("podSelector") or {}
        if not any(selects(selector, labels) for labels in pods):
            yield f"NetworkPolicy/{policy['metadata']['name']}: selects no pods"

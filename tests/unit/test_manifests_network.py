"""Evaluation of NetworkPolicies as Kubernetes does it: policies add up, and both pods must allow a connection."""

import pytest

from tests.manifests.deployment import Document, Manifests, selects
from tests.manifests.network import Edge, Network
from tests.manifests.parts.documents import document
from tests.manifests.quantity import amount

CALL = Edge("caller", "callee", 50051)


def _manifests(*specs: Document) -> Manifests:
    """Two pods, and policies with these specs."""
    policies = [document("networking.k8s.io/v1", "NetworkPolicy", f"p{n}", spec=spec) for n, spec in enumerate(specs)]
    return Manifests((_pods("caller"), _pods("callee"), *policies))


def _pods(name: str) -> Document:
    container = {"name": "server", "ports": [{"name": "grpc", "containerPort": 50051}]}
    template = {"metadata": {"labels": {"name": name}}, "spec": {"containers": [container]}}
    return document("apps/v1", "Deployment", name, spec={"template": template})


ALL: Document = {"podSelector": {}}
CALLED = {"podSelector": {"matchLabels": {"name": "callee"}}}
CALLER = {"podSelector": {"matchLabels": {"name": "caller"}}}


@pytest.mark.parametrize(
    ("rule", "is_open"),
    [
        ({}, True),
        ({"from": [CALLER]}, True),
        ({"from": [CALLED]}, False),
        ({"from": [CALLER], "ports": [{"port": 50051}]}, True),
        ({"from": [CALLER], "ports": [{"port": "grpc"}]}, True),
        ({"from": [CALLER], "ports": [{"port": 50000, "endPort": 50100}]}, True),
        ({"from": [CALLER], "ports": [{"port": 50052}]}, False),
        ({"from": [CALLER], "ports": [{"port": "http"}]}, False),
        ({"from": [{"namespaceSelector": {}}]}, True),
        ({"from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "other"}}}]}, False),
        ({"from": [{"namespaceSelector": {}, **CALLED}]}, False),
        ({"from": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}, False),
    ],
)
def test_ingress_rule_allows_the_peers_and_ports_it_names(rule: Document, *, is_open: bool) -> None:
    manifests = _manifests(CALLED | {"policyTypes": ["Ingress"], "ingress": [rule]})
    assert (CALL in Network(manifests).edges()) == is_open


def test_connection_needs_ingress_and_egress() -> None:
    opened = CALLED | {"policyTypes": ["Ingress"], "ingress": [{"from": [CALLER]}]}
    closed = CALLER | {"policyTypes": ["Egress"]}
    assert CALL in Network(_manifests(opened)).edges()
    assert CALL not in Network(_manifests(opened, closed)).edges()


def test_pods_without_policy_are_not_isolated() -> None:
    assert CALL in Network(_manifests()).edges()
    assert Network(_manifests(ALL | {"policyTypes": ["Ingress", "Egress"]})).edges() == set()


@pytest.mark.parametrize(
    ("expression", "matches"),
    [
        ({"key": "a", "operator": "In", "values": ["1", "2"]}, True),
        ({"key": "a", "operator": "NotIn", "values": ["1"]}, False),
        ({"key": "b", "operator": "NotIn", "values": ["1"]}, True),
        ({"key": "a", "operator": "Exists"}, True),
        ({"key": "a", "operator": "DoesNotExist"}, False),
    ],
)
def test_match_expressions_select_labels(expression: Document, *, matches: bool) -> None:
    assert selects({"matchExpressions": [expression]}, {"a": "1"}) == matches


@pytest.mark.parametrize(("quantity", "bytes_or_cores"), [("500m", 0.5), ("2", 2), (1, 1), ("1Ki", 1024), ("1M", 1e6)])
def test_quantities_are_parsed(quantity: object, bytes_or_cores: float) -> None:
    assert amount(quantity) == pytest.approx(bytes_or_cores)

"""compose.yaml: what its containers may do, what they are told, and whom they are seen by."""

import copy
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.manifests.environment import LIBRARIES, known_to
from tests.support.required_programs import require

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker" / "compose.yaml"
ELSEWHERE = ROOT / "docker" / "elsewhere.yaml"
FULL = ROOT / "docker" / "full.env"
OBSERVE = ROOT / "docker" / "observe.env"
CORE = {"gateway", "orchestrator", "planner", "selector", "responder"}
HOUSE = CORE | {"first-key", "expert-lite"}
GPU = {f"expert-{name}" for name in ("text", "vision", "audio", "video", "diffusion")}
STORES = {"postgres", "s3"}
WATCHERS = {"prometheus", "jaeger", "grafana"}
COLLECTOR = {"otel-collector"}
PEERS = STORES | WATCHERS | COLLECTOR
ABROAD = {"gateway", "planner", "selector", "responder"} | GPU
"""Who calls what is outside: URLs, LLMs, the Hub."""
PUBLISHED = {"gateway", "grafana"}
"""Who has a port on this machine; one that is on `inside` alone cannot."""

Compose = dict[str, Any]
VERSION = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)


@pytest.fixture
def compose() -> Compose:
    read: Compose = yaml.safe_load(FILE.read_text())
    return read


def confined(compose: Compose) -> Iterator[str]:
    """Who may more than it needs."""
    for name, service in compose["services"].items():
        if not service.get("read_only") or "/tmp" not in service.get("tmpfs", []):
            yield f"{name} can write to its root"
        if service.get("cap_drop") != ["ALL"] or (service.get("cap_add") and name not in {"postgres", "s3"}):
            yield f"{name} has capabilities"
        if service.get("security_opt") != ["no-new-privileges:true"] or service.get("privileged"):
            yield f"{name} can gain privileges"


def hidden(compose: Compose) -> Iterator[str]:
    """Who is seen from other machines, or sees them without need."""
    for name, service in compose["services"].items():
        if any(not port.startswith("127.0.0.1:") for port in service.get("ports", [])):
            yield f"{name} is published to other machines"
        if bool(service.get("ports")) != (name in PUBLISHED):
            yield f"{name} is {'' if service.get('ports') else 'not '}published"
        if set(service["networks"]) != ({"inside", "outside"} if name in ABROAD | PUBLISHED else {"inside"}):
            yield f"{name} is on {sorted(service['networks'])}"
    if not compose["networks"]["inside"]["internal"]:
        yield "inside leads outside"


def pinned(compose: Compose) -> Iterator[str]:
    """Images that are not this version of ours, or not those that the cluster has."""
    assert VERSION
    known = "\n".join(path.read_text() for path in (ROOT / "k8s" / "components").rglob("*.yaml"))
    for name, service in compose["services"].items():
        image = service["image"]
        if name in PEERS and f"image: {image}\n" not in known:
            yield f"{name}: {image} is not the cluster's"
        if name in PEERS and "." not in image.partition("/")[0]:
            yield f"{name}: {image} names no registry, which podman asks for"
        if name not in PEERS and not re.fullmatch(rf"hugginggpt/[a-z-]+:\$\{{TAG:-{VERSION[1]}}}(-cuda)?", image):
            yield f"{name}: {image} is not of this version"


def built(compose: Compose) -> Iterator[str]:
    """Images that are not built as `make images` does."""
    assert VERSION
    for name in compose["services"].keys() - PEERS:
        told = compose["services"][name]["build"]["args"]
        yield from (
            f"{name} is not told {each}" for each in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL") if each not in told
        )
        if told.get("VERSION") != VERSION[1]:
            yield f"{name} is built as version {told.get('VERSION')}"


def read(compose: Compose) -> Iterator[str]:
    """Variables that nobody reads."""
    for name in compose["services"].keys() - PEERS:
        service = compose["services"][name]
        module = "gateway" if name == "first-key" else service["command"][0]
        unknown = service["environment"].keys() - known_to(module)
        yield from (f"{name} reads no {each}" for each in sorted(unknown) if not LIBRARIES.fullmatch(each))


def found(compose: Compose) -> Iterator[str]:
    """Experts that the selector does not see."""
    for name, service in compose["services"].items():
        networks = service["networks"]
        if name.startswith("expert-") and "experts" not in (networks["inside"] or {}).get("aliases", []):
            yield f"{name} is not among experts"


def drained(compose: Compose) -> Iterator[str]:
    """Servers that are killed before their drain is over."""
    for name in compose["services"].keys() - PEERS - {"first-key"}:
        service = compose["services"][name]
        grace, drain = _seconds(service["stop_grace_period"]), float(service["environment"].get("DRAIN_SECONDS", 0))
        if not grace / 2 < drain < grace:
            yield f"{name} drains for {drain:g} s and is killed after {grace} s"


def _seconds(period: str) -> int:
    """Of a whole number of seconds or minutes, as 20s or 5m."""
    return int(period[:-1]) * {"s": 1, "m": 60}[period[-1]]


def mounted(compose: Compose) -> Iterator[str]:
    """Files of this repository that are not there, or can be written to."""
    for name, service in compose["services"].items():
        for volume in service.get("volumes", []):
            source, _, rest = volume.partition(":")
            if source.startswith(".") and not (FILE.parent / source).exists():
                yield f"{name} is given {source}, which is not there"
            if source.startswith(".") and not rest.endswith(":ro"):
                yield f"{name} can write to {source}"


RULES = (mounted, confined, hidden, pinned, built, read, found, drained)


@pytest.mark.parametrize("rule", RULES)
def test_it_is_as_it_should_be(compose: Compose, rule: Callable[[Compose], Iterator[str]]) -> None:
    assert list(rule(compose)) == []


@pytest.mark.parametrize(
    ("rule", "service", "spoilt"),
    [
        (mounted, "grafana", {"volumes": ["../k8s/gone:/dashboards:ro"]}),
        (mounted, "grafana", {"volumes": ["../k8s:/dashboards"]}),
        (confined, "planner", {"read_only": False}),
        (confined, "planner", {"tmpfs": []}),
        (confined, "planner", {"cap_drop": []}),
        (confined, "planner", {"cap_add": ["NET_RAW"]}),
        (confined, "planner", {"security_opt": []}),
        (hidden, "gateway", {"ports": ["8080:8080"]}),
        (hidden, "grafana", {"ports": ["0.0.0.0:3000:3000"]}),
        (hidden, "prometheus", {"ports": ["127.0.0.1:9090:9090"]}),
        (hidden, "orchestrator", {"networks": ["inside", "outside"]}),
        (pinned, "planner", {"image": "hugginggpt/core:latest"}),
        (pinned, "postgres", {"image": "docker.io/library/postgres:latest"}),
        (pinned, "postgres", {"image": "postgres:17.6-bookworm"}),
        (built, "planner", {"build": {"args": {"PIP_INDEX_URL": None, "VERSION": "0.1.0"}}}),
        (built, "planner", {"build": {"args": {"PIP_INDEX_URL": None, "PIP_EXTRA_INDEX_URL": None}}}),
        (read, "planner", {"environment": {"PLANNER_LISTENS": "0.0.0.0:1"}}),
        (found, "expert-lite", {"networks": {"inside": {}}}),
        (drained, "expert-text", {"stop_grace_period": "1m"}),
        (drained, "planner", {"environment": {}}),
    ],
)
def test_each_rule_complains(
    compose: Compose, rule: Callable[[Compose], Iterator[str]], service: str, spoilt: dict[str, Any]
) -> None:
    changed = copy.deepcopy(compose)
    changed["services"][service] |= spoilt
    assert [each for each in rule(changed) if service in each]


def test_profiles_add_to_a_house_that_is_whole_without(compose: Compose) -> None:
    by_profile: dict[str, set[str]] = {}
    for name, service in compose["services"].items():
        for profile in service.get("profiles", [""]):
            by_profile.setdefault(profile, set()).add(name)
    single = {name.removeprefix("expert-"): {name} for name in GPU}
    observe = WATCHERS | COLLECTOR
    assert by_profile == {"": HOUSE, "gpu": GPU, "full": STORES | COLLECTOR, "observe": observe} | single


@pytest.mark.parametrize("file", [FULL, OBSERVE], ids=lambda file: file.stem)
def test_everything_in_an_env_file_is_used(file: Path) -> None:
    names = [line.partition("=")[0] for line in file.read_text().splitlines() if line and not line.startswith("#")]
    text = FILE.read_text()
    assert names[0] == "COMPOSE_PROFILES"
    assert [name for name in names[1:] if not re.search(rf"\${{{name}\b|\b{name}: *[,}}\n]", text)] == []


def understood(*options: str) -> Compose:
    """As podman-compose reads it, with options before its command."""
    require("podman")
    command = [sys.executable, "-m", "podman_compose", "--file", str(FILE), *options, "config"]
    told = subprocess.run(command, check=True, timeout=60, env=os.environ, stdout=subprocess.PIPE, text=True)
    resolved: Compose = yaml.safe_load(told.stdout)
    return resolved


@pytest.mark.parametrize(
    ("options", "added"),
    [
        ((), set()),
        (("--profile", "gpu"), GPU),
        (("--env-file", str(FULL)), STORES | COLLECTOR),
        (("--env-file", str(OBSERVE)), WATCHERS | COLLECTOR),
    ],
)
def test_it_is_understood(options: tuple[str, ...], added: set[str]) -> None:
    assert understood(*options)["services"].keys() == HOUSE | added


def test_with_servers_elsewhere_everybody_may_go_there_and_experts_are_found() -> None:
    compose = understood("--profile", "gpu", "--file", str(ELSEWHERE))
    assert {name for name, each in compose["services"].items() if "outside" not in each["networks"]} == set()
    assert list(found(compose)) == []

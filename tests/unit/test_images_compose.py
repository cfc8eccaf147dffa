"""Rules for docker/compose.yaml: privileges, published ports, images, settings, and its profiles and env files."""

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

from tests.manifests.environment import LIBRARIES, variables_of
from tests.support.required_programs import require

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker" / "compose.yaml"
EXTERNAL_SERVICES = ROOT / "docker" / "external-services.yaml"
FULL = ROOT / "docker" / "full.env"
OBSERVE = ROOT / "docker" / "observe.env"
CORE = {"gateway", "orchestrator", "planner", "selector", "responder"}
DEFAULT = CORE | {"first-key", "expert-lite"}
GPU = {f"expert-{name}" for name in ("text", "vision", "audio", "video", "diffusion")}
STORES = {"postgres", "s3"}
OBSERVABILITY = {"prometheus", "jaeger", "grafana"}
COLLECTOR = {"otel-collector"}
THIRD_PARTY = STORES | OBSERVABILITY | COLLECTOR
LLM = {"expert-llm"}
EGRESS = {"gateway", "planner", "selector", "responder"} | LLM | GPU
"""Services that call external addresses: URLs, LLMs, the Hub."""
PUBLISHED = {"gateway", "grafana"}
"""Services with a port on this machine; Compose publishes none of the network `inside`."""

Compose = dict[str, Any]
VERSION = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)


@pytest.fixture
def compose() -> Compose:
    loaded: Compose = yaml.safe_load(FILE.read_text())
    return loaded


def is_unprivileged(compose: Compose) -> Iterator[str]:
    """Services with more privileges than they need."""
    for name, service in compose["services"].items():
        if not service.get("read_only") or "/tmp" not in service.get("tmpfs", []):
            yield f"{name} can write to its root"
        if service.get("cap_drop") != ["ALL"] or (service.get("cap_add") and name not in {"postgres", "s3"}):
            yield f"{name} has capabilities"
        if service.get("security_opt") != ["no-new-privileges:true"] or service.get("privileged"):
            yield f"{name} can gain privileges"


def is_isolated(compose: Compose) -> Iterator[str]:
    """Services that other machines can reach, or that can reach other machines without need."""
    for name, service in compose["services"].items():
        if any(not port.startswith("127.0.0.1:") for port in service.get("ports", [])):
            yield f"{name} is published to other machines"
        if bool(service.get("ports")) != (name in PUBLISHED):
            yield f"{name} is {'' if service.get('ports') else 'not '}published"
        if set(service["networks"]) != ({"inside", "outside"} if name in EGRESS | PUBLISHED else {"inside"}):
            yield f"{name} is on {sorted(service['networks'])}"
    if not compose["networks"]["inside"]["internal"]:
        yield "the network inside is not internal"


def has_pinned_images(compose: Compose) -> Iterator[str]:
    """Images that are not of this version, or not those of the Kubernetes manifests."""
    assert VERSION
    known = "\n".join(path.read_text() for path in (ROOT / "k8s" / "components").rglob("*.yaml"))
    for name, service in compose["services"].items():
        image = service["image"]
        if name in THIRD_PARTY and f"image: {image}\n" not in known:
            yield f"{name}: {image} is not the image of the Kubernetes manifests"
        if name in THIRD_PARTY and "." not in image.partition("/")[0]:
            yield f"{name}: {image} names no registry, which podman requires"
        if name not in THIRD_PARTY and not re.fullmatch(rf"hugginggpt/[a-z-]+:\$\{{TAG:-{VERSION[1]}}}(-cuda)?", image):
            yield f"{name}: {image} is not of this version"


def passes_build_arguments(compose: Compose) -> Iterator[str]:
    """Images that are built with other arguments than `make images` uses."""
    assert VERSION
    for name in compose["services"].keys() - THIRD_PARTY:
        arguments = compose["services"][name]["build"]["args"]
        yield from (
            f"{name} has no build argument {each}"
            for each in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL")
            if each not in arguments
        )
        if arguments.get("VERSION") != VERSION[1]:
            yield f"{name} is built as version {arguments.get('VERSION')}"


def sets_known_variables(compose: Compose) -> Iterator[str]:
    """Environment variables that the program does not read."""
    for name in compose["services"].keys() - THIRD_PARTY:
        service = compose["services"][name]
        module = "gateway" if name == "first-key" else service["command"][0]
        unknown = service["environment"].keys() - variables_of(module)
        yield from (f"{name} does not read {each}" for each in sorted(unknown) if not LIBRARIES.fullmatch(each))


def has_expert_alias(compose: Compose) -> Iterator[str]:
    """Experts that the selector cannot find."""
    for name, service in compose["services"].items():
        networks = service["networks"]
        if name.startswith("expert-") and "experts" not in (networks["inside"] or {}).get("aliases", []):
            yield f"{name} has no network alias experts"


def drains_in_time(compose: Compose) -> Iterator[str]:
    """Servers that are killed before they have drained."""
    for name in compose["services"].keys() - THIRD_PARTY - {"first-key"}:
        service = compose["services"][name]
        grace, drain = _seconds(service["stop_grace_period"]), float(service["environment"].get("DRAIN_SECONDS", 0))
        if not grace / 2 < drain < grace:
            yield f"{name} drains for {drain:g} s and is killed after {grace} s"


def _seconds(period: str) -> int:
    """Seconds of a Compose duration in whole seconds or minutes, such as 20s or 5m."""
    return int(period[:-1]) * {"s": 1, "m": 60}[period[-1]]


def mounts_read_only_files(compose: Compose) -> Iterator[str]:
    """Mounted files of this repository that do not exist or are writable."""
    for name, service in compose["services"].items():
        for volume in service.get("volumes", []):
            source, _, rest = volume.partition(":")
            if source.startswith(".") and not (FILE.parent / source).exists():
                yield f"{name} mounts {source}, which does not exist"
            if source.startswith(".") and not rest.endswith(":ro"):
                yield f"{name} can write to {source}"


RULES = (
    mounts_read_only_files,
    is_unprivileged,
    is_isolated,
    has_pinned_images,
    passes_build_arguments,
    sets_known_variables,
    has_expert_alias,
    drains_in_time,
)


@pytest.mark.parametrize("rule", RULES)
def test_compose_file_keeps_the_rule(compose: Compose, rule: Callable[[Compose], Iterator[str]]) -> None:
    assert list(rule(compose)) == []


@pytest.mark.parametrize(
    ("rule", "service", "change"),
    [
        (mounts_read_only_files, "grafana", {"volumes": ["../k8s/gone:/dashboards:ro"]}),
        (mounts_read_only_files, "grafana", {"volumes": ["../k8s:/dashboards"]}),
        (is_unprivileged, "planner", {"read_only": False}),
        (is_unprivileged, "planner", {"tmpfs": []}),
        (is_unprivileged, "planner", {"cap_drop": []}),
        (is_unprivileged, "planner", {"cap_add": ["NET_RAW"]}),
        (is_unprivileged, "planner", {"security_opt": []}),
        (is_isolated, "gateway", {"ports": ["8080:8080"]}),
        (is_isolated, "grafana", {"ports": ["0.0.0.0:3000:3000"]}),
        (is_isolated, "prometheus", {"ports": ["127.0.0.1:9090:9090"]}),
        (is_isolated, "orchestrator", {"networks": ["inside", "outside"]}),
        (has_pinned_images, "planner", {"image": "hugginggpt/core:latest"}),
        (has_pinned_images, "postgres", {"image": "docker.io/library/postgres:latest"}),
        (has_pinned_images, "postgres", {"image": "postgres:17.6-bookworm"}),
        (passes_build_arguments, "planner", {"build": {"args": {"PIP_INDEX_URL": None, "VERSION": "0.1.0"}}}),
        (passes_build_arguments, "planner", {"build": {"args": {"PIP_INDEX_URL": None, "PIP_EXTRA_INDEX_URL": None}}}),
        (sets_known_variables, "planner", {"environment": {"PLANNER_LISTENS": "0.0.0.0:1"}}),
        (has_expert_alias, "expert-lite", {"networks": {"inside": {}}}),
        (drains_in_time, "expert-text", {"stop_grace_period": "1m"}),
        (drains_in_time, "planner", {"environment": {}}),
    ],
)
def test_rule_reports_a_violation(
    compose: Compose, rule: Callable[[Compose], Iterator[str]], service: str, change: dict[str, Any]
) -> None:
    changed = copy.deepcopy(compose)
    changed["services"][service] |= change
    assert [each for each in rule(changed) if service in each]


def test_profiles_add_services_to_the_default(compose: Compose) -> None:
    by_profile: dict[str, set[str]] = {}
    for name, service in compose["services"].items():
        for profile in service.get("profiles", [""]):
            by_profile.setdefault(profile, set()).add(name)
    single = {name.removeprefix("expert-"): {name} for name in GPU}
    observe = OBSERVABILITY | COLLECTOR
    assert by_profile == {"": DEFAULT, "llm": LLM, "gpu": GPU, "full": STORES | COLLECTOR, "observe": observe} | single


@pytest.mark.parametrize("file", [FULL, OBSERVE], ids=lambda file: file.stem)
def test_variables_of_env_file_are_used(file: Path) -> None:
    names = [line.partition("=")[0] for line in file.read_text().splitlines() if line and not line.startswith("#")]
    text = FILE.read_text()
    assert names[0] == "COMPOSE_PROFILES"
    assert [name for name in names[1:] if not re.search(rf"\${{{name}\b|\b{name}: *[,}}\n]", text)] == []


def resolve(*options: str) -> Compose:
    """compose.yaml as podman-compose resolves it, with options before its command."""
    require("podman")
    command = [sys.executable, "-m", "podman_compose", "--file", str(FILE), *options, "config"]
    done = subprocess.run(command, check=True, timeout=60, env=os.environ, stdout=subprocess.PIPE, text=True)
    resolved: Compose = yaml.safe_load(done.stdout)
    return resolved


@pytest.mark.parametrize(
    ("options", "added"),
    [
        ((), set()),
        (("--profile", "llm"), LLM),
        (("--profile", "gpu"), GPU),
        (("--env-file", str(FULL)), STORES | COLLECTOR),
        (("--env-file", str(OBSERVE)), OBSERVABILITY | COLLECTOR),
    ],
)
def test_podman_compose_resolves_the_profiles(options: tuple[str, ...], added: set[str]) -> None:
    assert resolve(*options)["services"].keys() == DEFAULT | added


def test_external_services_file_gives_egress_to_all_services() -> None:
    compose = resolve("--profile", "gpu", "--file", str(EXTERNAL_SERVICES))
    assert {name for name, each in compose["services"].items() if "outside" not in each["networks"]} == set()
    assert list(has_expert_alias(compose)) == []

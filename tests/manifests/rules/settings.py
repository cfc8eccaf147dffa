"""What manifests tell programs is what programs read, and leads to somewhere."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic_settings import BaseSettings

from tests.manifests.deployment import Container, House, called, listed
from tests.manifests.environment import (
    LIBRARIES,
    PROGRAMS,
    WITH_WEIGHTS,
    drawn,
    known_to,
    module_of,
    programs,
    settings_of,
    told,
)

_DIALLED = re.compile(r"(?:dns:///)?([\w.-]+):(\d+)")
_URL = re.compile(r"([a-z0-9+]+)://(?:[^/@\s]*@)?([\w.-]+)(?::(\d+))?(?:[/?].*)?")
_USUAL = {"http": 80, "https": 443, "postgresql": 5432}
_NO_HOST = {"s3", "gs", "az", "file"}
_REFERRED = re.compile(r"\$\((\w+)\)")


def settings_are_read(house: House) -> Iterator[str]:
    """A variable that nobody reads is a typing error."""
    for container, module in programs(house):
        entries = listed(container.spec, "env")
        used = {name for entry in entries for name in _REFERRED.findall(str(entry.get("value")))}
        for name in (entry["name"] for entry in entries):
            if name not in known_to(module) | used and not LIBRARIES.fullmatch(name):
                yield f"{container}: {module} reads no {name}"


def shared_settings_are_read(house: House) -> Iterator[str]:
    """Of a ConfigMap that many are told, each key is somebody's."""
    known = {name for module in PROGRAMS for name in known_to(module)}
    told_whole = {source["configMapRef"]["name"] for c, _ in programs(house) for source in _maps(c)}
    for config in house.of("ConfigMap"):
        for name in config.get("data") or {} if config["metadata"]["name"] in told_whole else ():
            if name not in known and not LIBRARIES.fullmatch(name):
                yield f"{called(config)}: no program reads {name}"


def _maps(container: Container) -> list[dict[str, Any]]:
    return [source for source in listed(container.spec, "envFrom") if "configMapRef" in source]


def settings_are_valid(house: House) -> Iterator[str]:
    for container, module in programs(house):
        try:
            settings_of(house, container)
        except ValueError as error:
            yield f"{container}: {module} would refuse its settings: {error}"


def programs_are_known(house: House) -> Iterator[str]:
    for workload in house.staying:
        for container in workload.lasting:
            if container.is_ours and module_of(container) not in PROGRAMS:
                yield f"{container}: runs {module_of(container) or 'nothing'}, which is no program of the house"


def ports_are_listened_on(house: House) -> Iterator[str]:
    """Every port that a container has is one its program listens on, and the reverse."""
    for container, _ in programs(house):
        if container not in container.workload.lasting or not container.workload.stays:
            continue
        values = _texts(settings_of(house, container)).items()
        heard = {_port(value) for name, value in values if name.endswith("listen") and value}
        for port in sorted(heard ^ set(container.ports.values())):
            yield f"{container}: port {port} is {'not listed' if port in heard else 'not listened on'}"


def strangers_can_be_heard(house: House) -> Iterator[str]:
    """A program in a pod listens on all addresses: other pods and probes come from outside."""
    for container, _ in programs(house):
        for name, value in _texts(settings_of(house, container)).items():
            if name.endswith("listen") and value and not value.startswith("0.0.0.0:"):
                yield f"{container}: {name} is {value}"


def addresses_exist(house: House) -> Iterator[str]:
    """Whatever a program is told to call is a Service here with that port, or lies elsewhere."""
    for container, _ in programs(house):
        texts = _texts(settings_of(house, container)) | told(house, container)
        for name, value in texts.items():
            for host, port in _called(name, value):
                if wrong := _missing(house, host, port):
                    yield f"{container}: {name} leads to {host}:{port}, and {wrong}"


def the_gateway_asks_for_keys(house: House) -> Iterator[str]:
    for workload in house.staying:
        for asked in drawn(house, workload, "authentication"):
            if asked != "keys":
                yield f"{workload}: lets everybody in: GATEWAY_AUTHENTICATION is {asked}"


def clients_look_anew(house: House) -> Iterator[str]:
    """A connection that lasts for ever never finds replicas that are new."""
    for workload in house.staying:
        if not workload.is_expert and 0 in drawn(house, workload, "connection_seconds"):
            yield f"{workload}: keeps connections for ever: set CONNECTION_SECONDS"


def weights_are_there(house: House) -> Iterator[str]:
    """At run time no expert asks the Hub: what it would fetch, a Job or an init container has fetched."""
    for workload in house.staying:
        for container in workload.lasting:
            if module_of(container) in WITH_WEIGHTS and told(house, container).get("HF_HUB_OFFLINE") != "1":
                yield f"{container}: would ask the Hub for weights: set HF_HUB_OFFLINE to 1"


def settings_are_ours(house: House) -> Iterator[str]:
    """Kubernetes would put the addresses of all Services among the settings."""
    for workload in house.workloads:
        if workload.pod.get("enableServiceLinks") is not False:
            yield f"{workload}: enableServiceLinks is not false"


def orchestrators_reach_each_other(house: House) -> Iterator[str]:
    """What a run is told goes to the replica that has it."""
    for workload in house.staying:
        for address in drawn(house, workload, "own_address"):
            if not address:
                yield f"{workload}: no other replica could reach it: set ORCHESTRATOR_ADDRESS"


def _texts(settings: tuple[BaseSettings, ...]) -> dict[str, str]:
    found: Mapping[str, Any] = {name: value for each in settings for name, value in each}
    return {name: value for name, value in found.items() if isinstance(value, str)}


def _called(name: str, value: str) -> Iterator[tuple[str, int]]:
    """Hosts and ports in a setting that names others; its own addresses do not."""
    if name.lower().endswith(("listen", "address")):
        return
    for part in value.split(","):
        if dialled := _DIALLED.fullmatch(part.strip()):
            yield dialled[1], int(dialled[2])
        elif (url := _URL.fullmatch(part.strip())) and url[1] not in _NO_HOST:
            yield url[2], int(url[3] or _USUAL.get(url[1], 0))


def _missing(house: House, host: str, port: int) -> str:
    """What is missing of an address inside the namespace; names with dots lie elsewhere, unless they end in ours."""
    name, _, rest = host.partition(".")
    ours = {str(namespace["metadata"]["name"]) for namespace in house.of("Namespace")}
    if rest and rest.removesuffix(".cluster.local").removesuffix(".svc") not in ours:
        return ""
    service = house.named("Service", name)
    if service is None:
        return "there is no such Service"
    has = [each["port"] for each in service["spec"]["ports"]]
    return "" if port in has else f"the Service has {has}"


def _port(listen: str) -> int:
    return int(listen.rpartition(":")[2])

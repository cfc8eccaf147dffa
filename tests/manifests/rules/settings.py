"""Environment variables are read by the programs, valid, and refer to addresses that exist."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic_settings import BaseSettings

from tests.manifests.deployment import Container, Manifests, display_name, get_list
from tests.manifests.environment import (
    LIBRARIES,
    PROGRAMS,
    PROGRAMS_WITH_MODELS,
    environment_of,
    module_of,
    programs,
    setting_values,
    settings_of,
    variables_of,
)

_TARGET = re.compile(r"(?:dns:///)?([\w.-]+):(\d+)")
_URL = re.compile(r"([a-z0-9+]+)://(?:[^/@\s]*@)?([\w.-]+)(?::(\d+))?(?:[/?].*)?")
_DEFAULT_PORTS = {"http": 80, "https": 443, "postgresql": 5432}
_HOSTLESS_SCHEMES = {"s3", "gs", "az", "file"}
_REFERENCE = re.compile(r"\$\((\w+)\)")


def variables_are_read(manifests: Manifests) -> Iterator[str]:
    """A variable that the program does not read is a typing error."""
    for container, module in programs(manifests):
        entries = get_list(container.spec, "env")
        used = {name for entry in entries for name in _REFERENCE.findall(str(entry.get("value")))}
        for name in (entry["name"] for entry in entries):
            if name not in variables_of(module) | used and not LIBRARIES.fullmatch(name):
                yield f"{container}: {module} reads no {name}"


def shared_variables_are_read(manifests: Manifests) -> Iterator[str]:
    """At least one program reads each key of a ConfigMap that containers import whole."""
    known = {name for module in PROGRAMS for name in variables_of(module)}
    shared_maps = {source["configMapRef"]["name"] for c, _ in programs(manifests) for source in _config_map_sources(c)}
    for config in manifests.of_kind("ConfigMap"):
        for name in config.get("data") or {} if config["metadata"]["name"] in shared_maps else ():
            if name not in known and not LIBRARIES.fullmatch(name):
                yield f"{display_name(config)}: no program reads {name}"


def _config_map_sources(container: Container) -> list[dict[str, Any]]:
    return [source for source in get_list(container.spec, "envFrom") if "configMapRef" in source]


def settings_are_valid(manifests: Manifests) -> Iterator[str]:
    for container, module in programs(manifests):
        try:
            settings_of(manifests, container)
        except ValueError as error:
            yield f"{container}: {module} rejects its settings: {error}"


def modules_are_known(manifests: Manifests) -> Iterator[str]:
    for workload in manifests.long_running:
        for container in workload.main_containers:
            if container.is_ours and module_of(container) not in PROGRAMS:
                yield f"{container}: runs {module_of(container) or 'nothing'}, which is no known program"


def container_ports_match_listeners(manifests: Manifests) -> Iterator[str]:
    """A container declares exactly the ports that its program listens on."""
    for container, _ in programs(manifests):
        if container not in container.workload.main_containers or not container.workload.is_long_running:
            continue
        values = _text_settings(settings_of(manifests, container)).items()
        listening = {_port(value) for name, value in values if name.endswith("listen") and value}
        for port in sorted(listening ^ set(container.ports.values())):
            yield f"{container}: port {port} is {'not declared' if port in listening else 'not listened on'}"


def servers_listen_on_all_addresses(manifests: Manifests) -> Iterator[str]:
    """Other pods and probes connect to the pod's address, so programs listen on all addresses."""
    for container, _ in programs(manifests):
        for name, value in _text_settings(settings_of(manifests, container)).items():
            if name.endswith("listen") and value and not value.startswith("0.0.0.0:"):
                yield f"{container}: {name} is {value}"


def addresses_exist(manifests: Manifests) -> Iterator[str]:
    """An address inside the namespace names a Service and one of its ports."""
    for container, _ in programs(manifests):
        texts = _text_settings(settings_of(manifests, container)) | environment_of(manifests, container)
        for name, value in texts.items():
            for host, port in _targets(name, value):
                if reason := _unresolved(manifests, host, port):
                    yield f"{container}: {name} is {host}:{port}, but {reason}"


def gateway_requires_api_keys(manifests: Manifests) -> Iterator[str]:
    for workload in manifests.long_running:
        for mode in setting_values(manifests, workload, "authentication"):
            if mode != "keys":
                yield f"{workload}: accepts unauthenticated requests: GATEWAY_AUTHENTICATION is {mode}"


def connections_are_renewed(manifests: Manifests) -> Iterator[str]:
    """A connection without an age limit never reaches new replicas."""
    for workload in manifests.long_running:
        if not workload.is_expert and 0 in setting_values(manifests, workload, "connection_seconds"):
            yield f"{workload}: connections have no age limit: set CONNECTION_SECONDS"


def experts_run_offline(manifests: Manifests) -> Iterator[str]:
    """A Job or an init container downloads models; experts never query the Hub."""
    for workload in manifests.long_running:
        for container in workload.main_containers:
            if (
                module_of(container) in PROGRAMS_WITH_MODELS
                and environment_of(manifests, container).get("HF_HUB_OFFLINE") != "1"
            ):
                yield f"{container}: would query the Hub for weights: set HF_HUB_OFFLINE to 1"


def service_links_are_disabled(manifests: Manifests) -> Iterator[str]:
    """Service links would add the addresses of all Services to the environment."""
    for workload in manifests.workloads:
        if workload.pod.get("enableServiceLinks") is not False:
            yield f"{workload}: enableServiceLinks is not false"


def orchestrators_advertise_their_address(manifests: Manifests) -> Iterator[str]:
    """Commands for a run are forwarded to the replica that owns it."""
    for workload in manifests.long_running:
        for address in setting_values(manifests, workload, "own_address"):
            if not address:
                yield f"{workload}: other replicas cannot reach it: set ORCHESTRATOR_ADDRESS"


def _text_settings(settings: tuple[BaseSettings, ...]) -> dict[str, str]:
    values: Mapping[str, Any] = {name: value for each in settings for name, value in each}
    return {name: value for name, value in values.items() if isinstance(value, str)}


def _targets(name: str, value: str) -> Iterator[tuple[str, int]]:
    """Hosts and ports in a setting that refers to other programs, not in the program's own addresses."""
    if name.lower().endswith(("listen", "address")):
        return
    for part in value.split(","):
        if target := _TARGET.fullmatch(part.strip()):
            yield target[1], int(target[2])
        elif (url := _URL.fullmatch(part.strip())) and url[1] not in _HOSTLESS_SCHEMES:
            yield url[2], int(url[3] or _DEFAULT_PORTS.get(url[1], 0))


def _unresolved(manifests: Manifests, host: str, port: int) -> str:
    """Why an address inside the namespace does not resolve; empty if it does, or lies in another namespace."""
    name, _, rest = host.partition(".")
    namespaces = {str(namespace["metadata"]["name"]) for namespace in manifests.of_kind("Namespace")}
    if rest and rest.removesuffix(".cluster.local").removesuffix(".svc") not in namespaces:
        return ""
    service = manifests.find("Service", name)
    if service is None:
        return "there is no such Service"
    ports = [each["port"] for each in service["spec"]["ports"]]
    return "" if port in ports else f"the Service has {ports}"


def _port(listen: str) -> int:
    return int(listen.rpartition(":")[2])

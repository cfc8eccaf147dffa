"""Routes, monitors and certificates refer to documents that exist."""

import re
from collections.abc import Iterator

from tests.manifests.deployment import Document, Manifests, Workload, display_name, get_list
from tests.manifests.environment import setting_values


def routes_reference_services(manifests: Manifests) -> Iterator[str]:
    for route in manifests.of_kind("HTTPRoute", "GRPCRoute", "Ingress"):
        for name, port in _backends(route):
            service = manifests.find("Service", name)
            known = {value for each in get_list((service or {}).get("spec", {}), "ports") for value in _port_keys(each)}
            if port not in known:
                yield f"{display_name(route)}: there is no Service {name} with the port {port}"


def _backends(route: Document) -> Iterator[tuple[str, object]]:
    for rule in get_list(route["spec"], "rules"):
        yield from ((backend["name"], backend["port"]) for backend in get_list(rule, "backendRefs"))
        for path in get_list(rule.get("http", {}), "paths"):
            service = path["backend"]["service"]
            yield service["name"], service["port"].get("number", service["port"].get("name"))


def _port_keys(port: Document) -> set[object]:
    return {port["port"], port.get("name")}


def routes_have_listeners(manifests: Manifests) -> Iterator[str]:
    """A route receives requests only through a listener with its name, and with its hostnames if it has any."""
    for route in manifests.of_kind("HTTPRoute", "GRPCRoute"):
        for parent in get_list(route["spec"], "parentRefs"):
            gateway = manifests.find("Gateway", parent["name"])
            listeners = get_list(gateway["spec"], "listeners") if gateway else []
            hosts = [each.get("hostname") for each in listeners if each["name"] == parent.get("sectionName")]
            if not hosts or not set(route["spec"].get("hostnames") or hosts) <= set(hosts):
                yield f"{display_name(route)}: {parent['name']} has no listener for it"


def listeners_use_tls(manifests: Manifests) -> Iterator[str]:
    for gateway in manifests.of_kind("Gateway"):
        for listener in get_list(gateway["spec"], "listeners"):
            if listener["protocol"] != "HTTPS":
                yield f"{display_name(gateway)}: the listener {listener['name']} uses {listener['protocol']}, not HTTPS"
            if not get_list(listener.get("tls", {}), "certificateRefs"):
                yield f"{display_name(gateway)}: the listener {listener['name']} has no certificate"


def pod_monitors_select_pods_and_ports(manifests: Manifests) -> Iterator[str]:
    for monitor in manifests.of_kind("PodMonitor"):
        selected = manifests.workloads_matching(monitor["spec"]["selector"])
        missing = [workload for workload in manifests.long_running if workload.is_ours and workload not in selected]
        yield from (f"{display_name(monitor)}: leaves out {workload}" for workload in missing)
        for endpoint in get_list(monitor["spec"], "podMetricsEndpoints"):
            portless = [workload for workload in selected if endpoint["port"] not in _port_names(workload)]
            yield from (f"{display_name(monitor)}: {workload} has no port {endpoint['port']}" for workload in portless)


def _port_names(workload: Workload) -> set[str]:
    return {name for container in workload.main_containers for name in container.ports}


def certificates_include_the_tls_name(manifests: Manifests) -> Iterator[str]:
    """Services verify each other's certificates for one common name."""
    names = {name for workload in manifests.long_running for name in setting_values(manifests, workload, "tls_name")}
    for secret, workload in ((s, w) for w in manifests.long_running for s in _tls_secrets(manifests, w)):
        certificates = [each for each in manifests.of_kind("Certificate") if each["spec"]["secretName"] == secret]
        for certificate in certificates:
            if not names <= set(certificate["spec"].get("dnsNames") or []):
                missing = ", ".join(sorted(names))
                yield f"{display_name(certificate)}: does not include {missing}, which {workload} expects"


def durations_can_be_parsed(manifests: Manifests) -> Iterator[str]:
    """A duration is a string in the schema; the API server refuses those that Go cannot parse, such as 90d."""
    for certificate in manifests.of_kind("Certificate"):
        for name in ("duration", "renewBefore"):
            value = certificate["spec"].get(name, "1h")
            if not re.fullmatch(r"([0-9]+h)?([0-9]+m)?([0-9]+s)?", value):
                yield f"{display_name(certificate)}: {name} is {value}"


def _tls_secrets(manifests: Manifests, workload: Workload) -> Iterator[str]:
    """Secrets that contain the certificates configured for a workload's programs."""
    folders = {str(path.parent) for path in setting_values(manifests, workload, "tls_certificate") if path}
    for container in workload.main_containers:
        volumes = [workload.volumes[mount["name"]] for path, mount in container.mounts.items() if path in folders]
        yield from (volume["secret"]["secretName"] for volume in volumes if "secret" in volume)

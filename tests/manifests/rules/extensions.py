"""What resources of extensions name: routes, monitors, certificates."""

from collections.abc import Iterator

from tests.manifests.deployment import Document, House, Workload, called, listed
from tests.manifests.environment import drawn


def routes_lead_to_services(house: House) -> Iterator[str]:
    for route in house.of("HTTPRoute", "GRPCRoute", "Ingress"):
        for name, port in _backends(route):
            service = house.named("Service", name)
            known = {value for each in listed((service or {}).get("spec", {}), "ports") for value in _names(each)}
            if port not in known:
                yield f"{called(route)}: there is no Service {name} with the port {port}"


def _backends(route: Document) -> Iterator[tuple[str, object]]:
    for rule in listed(route["spec"], "rules"):
        yield from ((backend["name"], backend["port"]) for backend in listed(rule, "backendRefs"))
        for path in listed(rule.get("http", {}), "paths"):
            service = path["backend"]["service"]
            yield service["name"], service["port"].get("number", service["port"].get("name"))


def _names(port: Document) -> set[object]:
    return {port["port"], port.get("name")}


def routes_have_a_listener(house: House) -> Iterator[str]:
    """A route hangs on a listener with its hostname, or nobody is sent along it."""
    for route in house.of("HTTPRoute", "GRPCRoute"):
        for parent in listed(route["spec"], "parentRefs"):
            gateway = house.named("Gateway", parent["name"])
            listeners = listed(gateway["spec"], "listeners") if gateway else []
            hosts = [each.get("hostname") for each in listeners if each["name"] == parent.get("sectionName")]
            if not set(route["spec"].get("hostnames") or [None]) <= set(hosts):
                yield f"{called(route)}: {parent['name']} has no listener for it"


def monitors_read_ports(house: House) -> Iterator[str]:
    for monitor in house.of("PodMonitor"):
        selected = house.selected(monitor["spec"]["selector"])
        missed = [workload for workload in house.staying if workload.is_ours and workload not in selected]
        yield from (f"{called(monitor)}: leaves out {workload}" for workload in missed)
        for endpoint in listed(monitor["spec"], "podMetricsEndpoints"):
            strange = [workload for workload in selected if endpoint["port"] not in _port_names(workload)]
            yield from (f"{called(monitor)}: {workload} has no port {endpoint['port']}" for workload in strange)


def _port_names(workload: Workload) -> set[str]:
    return {name for container in workload.lasting for name in container.ports}


def certificates_bear_the_name(house: House) -> Iterator[str]:
    """Services ask each other's certificates for one common name."""
    names = {name for workload in house.staying for name in drawn(house, workload, "tls_name")}
    for secret, workload in ((s, w) for w in house.staying for s in _tls_secrets(house, w)):
        made = [each for each in house.of("Certificate") if each["spec"]["secretName"] == secret]
        for certificate in made:
            if not names <= set(certificate["spec"].get("dnsNames") or []):
                yield f"{called(certificate)}: does not bear {', '.join(sorted(names))}, which {workload} asks for"


def _tls_secrets(house: House, workload: Workload) -> Iterator[str]:
    """Secrets in which the certificates lie that its programs are told of."""
    folders = {str(path.parent) for path in drawn(house, workload, "tls_certificate") if path}
    for container in workload.lasting:
        volumes = [workload.volumes[mount["name"]] for path, mount in container.mounts.items() if path in folders]
        yield from (volume["secret"]["secretName"] for volume in volumes if "secret" in volume)

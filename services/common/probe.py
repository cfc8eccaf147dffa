"""Command-line health check, for container engines without gRPC probes: python -m services.common.probe HOST:PORT."""

import argparse
import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

TIMEOUT_SECONDS = 3.0

_NO_PROXY = (("grpc.enable_http_proxy", 0),)


def health_error(address: str, service: str = "") -> str:
    """Why a server is not healthy; empty if it serves.

    Args:
        address: host:port of grpc.health.v1 without TLS.
        service: name to check; empty checks the server as a whole.
    """
    request = health_pb2.HealthCheckRequest(service=service)
    with grpc.insecure_channel(address, options=_NO_PROXY) as channel:
        check = health_pb2_grpc.HealthStub(channel).Check  # type: ignore[attr-defined]  # missing in the types only
        try:
            status = check(request, timeout=TIMEOUT_SECONDS).status
        except grpc.RpcError as error:
            return f"{address}: {error.code().name}: {error.details()}"
    state = health_pb2.HealthCheckResponse
    name = state.ServingStatus.Name(status)
    return "" if status == state.SERVING else f"{address}: {service or 'the server'} is {name}"


def main() -> None:
    """Exits with 0 if the server is healthy, else with 1 and one line that says why."""
    parser = argparse.ArgumentParser(prog="python -m services.common.probe", description="Checks a server's health.")
    parser.add_argument("address", help="HOST:PORT of its health service, as set by HEALTH_LISTEN")
    parser.add_argument("name", nargs="?", default="", help="readiness, liveness, startup or a service's full name")
    arguments = parser.parse_args()
    sys.exit(health_error(arguments.address, arguments.name) or 0)


if __name__ == "__main__":
    main()

"""Asks a server how it is, for probes without a kubelet: python -m services.common.probe HOST:PORT [NAME]."""

import argparse
import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

SECONDS = 3.0
"""Longest wait for the answer."""

_NO_PROXY = (("grpc.enable_http_proxy", 0),)


def complaint(address: str, name: str = "") -> str:
    """What is wrong with a server that answers grpc.health.v1 without TLS; empty if it serves.

    Args:
        address: host:port.
        name: of the health asked for; empty asks for the whole server's.
    """
    request = health_pb2.HealthCheckRequest(service=name)
    with grpc.insecure_channel(address, options=_NO_PROXY) as channel:
        check = health_pb2_grpc.HealthStub(channel).Check  # type: ignore[attr-defined]  # missing in the types only
        try:
            status = check(request, timeout=SECONDS).status
        except grpc.RpcError as error:
            return f"{address}: {error.code().name}: {error.details()}"
    state = health_pb2.HealthCheckResponse
    said = state.ServingStatus.Name(status)
    return "" if status == state.SERVING else f"{address}: {name or 'the server'} is {said}"


def main() -> None:
    """Exit status 0 says that it serves; else one line says what is wrong, and the status is 1."""
    parser = argparse.ArgumentParser(prog="python -m services.common.probe", description="How is a server?")
    parser.add_argument("address", help="HOST:PORT of its health, as HEALTH_LISTEN has it")
    parser.add_argument("name", nargs="?", default="", help="readiness, liveness, startup or a service's full name")
    arguments = parser.parse_args()
    sys.exit(complaint(arguments.address, arguments.name) or 0)


if __name__ == "__main__":
    main()

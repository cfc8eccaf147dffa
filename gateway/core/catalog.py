"""Catalog of task types, models and experts, as reported by the selector."""

import asyncio
import socket
from typing import TYPE_CHECKING

from gateway.core.service_calls import call
from protos.hugginggpt.internal.v1 import selector_pb2
from protos.hugginggpt.internal.v1.selector_pb2_grpc import SelectorServiceStub
from protos.hugginggpt.v1 import gateway_pb2
from services.common.channel import dial
from services.common.errors import NotFound, ServiceError, Unavailable

if TYPE_CHECKING:
    from protos.hugginggpt.internal.v1.selector_pb2_grpc import SelectorServiceAsyncStub

LOCAL_CONTROLLER = "hugginggpt-local"
"""Controller id that forces the data policy local."""

CONTROLLERS = ("hugginggpt", LOCAL_CONTROLLER)
"""Model ids under which OpenAI's clients start runs."""

_DNS = "dns:///"
_LISTS = ("ipv4:", "ipv6:")


class Catalog:
    """Client of the selector for its catalog.

    Every method raises the ServiceError the selector raised, or Unavailable if it did not answer.

    Args:
        stub: stub of the selector.
        target: gRPC target that resolves to all replicas.
    """

    def __init__(self, stub: "SelectorServiceAsyncStub", target: str) -> None:
        self._stub = stub
        self._target = target

    async def tasks(self, request: gateway_pb2.ListTasksRequest) -> gateway_pb2.ListTasksResponse:
        return await call(self._stub.ListTasks, request)

    async def models(self, request: gateway_pb2.ListModelsRequest) -> gateway_pb2.ListModelsResponse:
        return await call(self._stub.ListModels, request)

    async def experts(self) -> selector_pb2.ListExpertsResponse:
        return await call(self._stub.ListExperts, selector_pb2.ListExpertsRequest())

    async def remove_expert(self, expert: str) -> None:
        """Removes an expert from every replica of the selector; succeeds if at least one replica knew it.

        Raises:
            ServiceError: an error of a replica, raised after all replicas were called.
        """
        there = await addresses(self._target)
        outcomes = await asyncio.gather(*(self._remove_expert_at(address, expert) for address in there))
        known = [outcome for outcome in outcomes if not isinstance(outcome, NotFound)]
        for error in filter(None, known or outcomes):
            raise error

    async def _remove_expert_at(self, address: str, expert: str) -> ServiceError | None:
        async with dial(address) as channel:
            try:
                await call(SelectorServiceStub(channel).ForgetExpert, selector_pb2.ForgetExpertRequest(name=expert))
            except ServiceError as error:
                return error
        return None


async def addresses(target: str) -> list[str]:
    """Returns host:port of every server behind the target.

    Args:
        target: host:port, dns:///name:port, or ipv4: and ipv6: with addresses by comma.

    Raises:
        Unavailable: the name cannot be resolved.
    """
    for scheme in _LISTS:
        if target.startswith(scheme):
            return target.removeprefix(scheme).split(",")
    host, _, port = target.removeprefix(_DNS).rpartition(":")
    try:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except (socket.gaierror, ValueError) as error:
        raise Unavailable(f"{target} cannot be resolved", remedy="try again; if it lasts, look at its DNS") from error
    return list(dict.fromkeys(_joined(str(where[0]), int(where[1])) for *_, where in found))


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

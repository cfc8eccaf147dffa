"""Clients of the gateway's HTTP and gRPC APIs with one interface and one form of errors."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import grpc
import httpx
from grpc import StatusCode

from gateway.json_decoder import decode
from gateway.json_encoder import encode
from protos.hugginggpt.v1 import gateway_pb2
from protos.hugginggpt.v1 import gateway_pb2 as pb
from protos.hugginggpt.v1.gateway_pb2_grpc import GatewayServiceStub
from protos.hugginggpt.v1.run_pb2 import RunSpec
from services.common.errors import from_rpc

SECONDS = 40.0
"""Longest run waited for."""

Spec = Mapping[str, Any]
Run = Mapping[str, Any]


@dataclass(frozen=True)
class ApiError:
    """Error of a rejected request."""

    status: int | StatusCode
    code: str
    detail: str
    remedy: str


class Endpoint(Protocol):
    """One API of the gateway."""

    async def create_run(self, spec: Spec, files: Mapping[str, bytes]) -> ApiError | Run: ...


class HttpEndpoint:
    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def create_run(self, spec: Spec, files: Mapping[str, bytes]) -> ApiError | Run:
        if files:
            parts: list[tuple[str, Any]] = [("file", file) for file in files.items()]
            sent: dict[str, Any] = {"files": [("spec", (None, json.dumps(spec))), *parts]}
        else:
            sent = {"json": spec}
        response = await self._client.post("/v1/runs", headers={"prefer": f"wait={SECONDS:g}"}, **sent)
        return response.json() if response.is_success else http_api_error(response)


class GrpcEndpoint:
    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub: Any = GatewayServiceStub(channel)

    async def create_run(self, spec: Spec, files: Mapping[str, bytes]) -> ApiError | Run:
        sent = [pb.InlineFile(name=name, content=content) for name, content in files.items()]
        call = self._stub.CreateRun(pb.CreateRunRequest(spec=decode(RunSpec, spec), files=sent), timeout=SECONDS)
        try:
            events = [event async for event in call]
        except grpc.aio.AioRpcError as error:
            return rpc_api_error(error)
        watched = [
            event
            async for event in self._stub.WatchRun(gateway_pb2.WatchRunRequest(run_id=events[0].run_id), timeout=5)
        ]
        assert watched == events
        run = await self._stub.GetRun(gateway_pb2.GetRunRequest(run_id=events[0].run_id), timeout=5)
        assert run.state == events[-1].run_ended.state
        assert run.failure == events[-1].run_ended.failure
        document: Run = encode(run)
        return document


def http_api_error(response: httpx.Response) -> ApiError:
    """Parses an HTTP problem; the member for OpenAI's clients has the same content."""
    body = response.json()
    assert response.headers["content-type"] == "application/problem+json"
    assert body["status"] == response.status_code
    assert body["instance"] == response.url.path
    assert body["error"]["message"] == body["detail"]
    assert body["error"]["code"] == body["code"]
    return ApiError(response.status_code, body["code"], body["detail"], body.get("remedy", ""))


def rpc_api_error(error: grpc.aio.AioRpcError) -> ApiError:
    decoded = from_rpc(error)
    return ApiError(decoded.code, decoded.reason, decoded.message, decoded.remedy)

"""Catalog of task types, models and experts, as reported by the selector."""

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from gateway.auth.audit import Audit
from gateway.auth.identity import require_admin
from gateway.http.etag import CacheableJson
from gateway.json_decoder import decode
from gateway.json_encoder import dumps, encode, enum_names
from gateway.openapi import document
from gateway.replicas import addresses
from gateway.service_calls import call
from protos.hugginggpt.internal.v1 import selector_pb2
from protos.hugginggpt.internal.v1.selector_pb2_grpc import SelectorServiceStub
from protos.hugginggpt.v1 import gateway_pb2
from protos.hugginggpt.v1.model_pb2 import SelectionPolicy
from services.common.channel import dial
from services.common.errors import NotFound, ServiceError

if TYPE_CHECKING:
    from protos.hugginggpt.internal.v1.selector_pb2_grpc import SelectorServiceAsyncStub

LOCAL_CONTROLLER = "hugginggpt-local"
"""Controller id that forces the data policy local."""

CONTROLLERS = ("hugginggpt", LOCAL_CONTROLLER)
"""Model ids under which OpenAI's clients start runs."""


_POLICIES = enum_names(SelectionPolicy.DESCRIPTOR)


class Catalog:
    """Client of the selector for its catalog; caches the task list as JSON until its revision changes.

    Every method raises the ServiceError the selector raised, or Unavailable if it did not answer.

    Args:
        stub: stub of the selector.
        target: gRPC target that resolves to all replicas.
    """

    def __init__(self, stub: "SelectorServiceAsyncStub", target: str) -> None:
        self._stub = stub
        self._target = target
        self._revision = ""
        self._tasks = CacheableJson(b"")

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

    async def tasks_json(self) -> CacheableJson:
        reply = await self.tasks(gateway_pb2.ListTasksRequest(known_revision=self._revision))
        if not reply.unchanged:
            self._revision, self._tasks = reply.revision, CacheableJson(dumps(_tasks(reply)))
        return self._tasks


class CatalogRoutes:
    """Routes of the catalog."""

    def __init__(self, catalog: Catalog, audit: Audit) -> None:
        self._catalog = catalog
        self._audit = audit

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/v1", tags=["catalogue"], default_response_class=Response)
        router.add_api_route("/tasks", self.list_tasks, methods=["GET"], **document.TASKS)
        router.add_api_route("/models", self.list_models, methods=["GET"], **document.MODELS)
        router.add_api_route("/experts", self.list_experts, methods=["GET"], **document.EXPERTS)
        router.add_api_route("/experts/{name}", self.remove_expert, methods=["DELETE"], **document.NO_CONTENT)
        return router

    async def list_tasks(self, request: Request) -> Response:
        """Lists the task types that can be planned now; supports `If-None-Match`."""
        return (await self._catalog.tasks_json()).response(request)

    async def list_models(
        self,
        request: Request,
        task: Annotated[str, Query(description="Only models for this task.")] = "",
        page_size: Annotated[int, Query(ge=0, le=10_000, description="0 means all.")] = 0,
        page_token: Annotated[str, Query(description="`next_page_token` of the previous page.")] = "",
    ) -> Response:
        """Lists controllers in OpenAI's format (`data`) and the models that can be selected now (`models`).

        The first page also contains the operator's routing rules (`routes`) and the default selection policy
        (`selection_policy`).
        """
        parameters = {"task": task, "page_size": page_size, "page_token": page_token}
        reply = await self._catalog.models(decode(gateway_pb2.ListModelsRequest, parameters))
        return CacheableJson(dumps(_models(reply))).response(request)

    async def list_experts(self) -> Response:
        """Lists the known experts, including dormant ones, and their problems."""
        reply = await self._catalog.experts()
        listed = {"object": "list", "data": [encode(expert) for expert in reply.experts]}
        return Response(dumps(listed), media_type="application/json")

    async def remove_expert(
        self, name: Annotated[str, Path(description="Name of the expert, or its host:port.")]
    ) -> Response:
        """Removes an expert that was added at run time, by its name or one of its addresses.

        After the response, none of its tasks is planned. With API keys enabled, an admin key is required.
        """
        require_admin()
        await self._audit.record("expert.forget", name)
        await self._catalog.remove_expert(name)
        return Response(status_code=204)


def _tasks(reply: gateway_pb2.ListTasksResponse) -> dict[str, Any]:
    tasks = [{**encode(task.spec), "experts": list(task.experts), "dormant": task.dormant} for task in reply.tasks]
    return {"object": "list", "revision": reply.revision, "data": tasks}


def _models(reply: gateway_pb2.ListModelsResponse) -> dict[str, Any]:
    return {
        "object": "list",
        "data": [controller(name) for name in CONTROLLERS],
        "revision": reply.revision,
        "models": [encode(card) for card in reply.models],
        "routes": [encode(route) for route in reply.routes],
        **({"selection_policy": _POLICIES[reply.selection_policy]} if reply.selection_policy else {}),
        **({"next_page_token": reply.next_page_token} if reply.next_page_token else {}),
    }


def controller(name: str) -> dict[str, Any]:
    """Returns a controller in OpenAI's model format."""
    return {"id": name, "object": "model", "created": 0, "owned_by": "hugginggpt"}

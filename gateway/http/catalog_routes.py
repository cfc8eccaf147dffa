"""Routes of the catalog: task types, models and experts, with ETags."""

from functools import cached_property
from hashlib import sha256
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from gateway.auth.audit import Audit
from gateway.auth.identity import require_admin
from gateway.core.catalog import CONTROLLERS, Catalog
from gateway.json_decoder import decode
from gateway.json_encoder import dumps, encode, enum_names
from gateway.openapi import operations
from protos.hugginggpt.v1 import gateway_pb2
from protos.hugginggpt.v1.model_pb2 import SelectionPolicy

_POLICIES = enum_names(SelectionPolicy.DESCRIPTOR)


class CacheableJson:
    """JSON content with an ETag computed from its bytes."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    @cached_property
    def tag(self) -> str:
        return f'"{sha256(self._content).hexdigest()[:32]}"'

    def response(self, request: Request) -> Response:
        """Returns the content, or 304 Not Modified if the client has this version."""
        headers = {"etag": self.tag, "cache-control": "private, no-cache"}
        known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
        if self.tag in known or known == ["*"]:
            return Response(status_code=304, headers=headers)
        return Response(self._content, headers=headers, media_type="application/json")


class CatalogRoutes:
    """Routes of the catalog; the task list is encoded once per revision."""

    def __init__(self, catalog: Catalog, audit: Audit) -> None:
        self._catalog = catalog
        self._audit = audit
        self._revision = ""
        self._tasks = CacheableJson(b"")

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/v1", tags=["catalogue"], default_response_class=Response)
        router.add_api_route("/tasks", self.list_tasks, methods=["GET"], **operations.LIST_TASKS)
        router.add_api_route("/models", self.list_models, methods=["GET"], **operations.LIST_MODELS)
        router.add_api_route("/experts", self.list_experts, methods=["GET"], **operations.LIST_EXPERTS)
        router.add_api_route("/experts/{name}", self.remove_expert, methods=["DELETE"], **operations.NO_CONTENT)
        return router

    async def list_tasks(self, request: Request) -> Response:
        """Lists the task types that can be planned now; supports `If-None-Match`."""
        reply = await self._catalog.tasks(gateway_pb2.ListTasksRequest(known_revision=self._revision))
        if not reply.unchanged:
            self._revision, self._tasks = reply.revision, CacheableJson(dumps(_tasks(reply)))
        return self._tasks.response(request)

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

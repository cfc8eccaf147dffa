"""What the house can do now, as the selector tells it."""

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from gateway.auth.audit import Audit
from gateway.auth.identity import require_admin
from gateway.http.etag import Tagged
from gateway.json_decoder import decode
from gateway.json_encoder import dumps, encode, enum_names
from gateway.openapi import document
from gateway.replicas import addresses
from gateway.service_calls import ask
from protos.hugginggpt.internal.v1 import selector_pb2
from protos.hugginggpt.internal.v1.selector_pb2_grpc import SelectorServiceStub
from protos.hugginggpt.v1 import gateway_pb2
from protos.hugginggpt.v1.model_pb2 import SelectionPolicy
from services.common.channel import dial
from services.common.errors import NotFound, ServiceError

if TYPE_CHECKING:
    from protos.hugginggpt.internal.v1.selector_pb2_grpc import SelectorServiceAsyncStub

LOCAL_CONTROLLER = "hugginggpt-local"
"""Lets no byte leave the house, wherever the deployment would."""

CONTROLLERS = ("hugginggpt", LOCAL_CONTROLLER)
"""Ids under which OpenAI's clients ask for a run."""


_POLICIES = enum_names(SelectionPolicy.DESCRIPTOR)


class Catalogue:
    """Asks the selector; keeps the kinds of task, as JSON, until they change.

    Every method raises the ServiceError the selector raised, or Unavailable if it did not answer.

    Args:
        stub: of any of its replicas.
        target: behind which all of them are.
    """

    def __init__(self, stub: "SelectorServiceAsyncStub", target: str) -> None:
        self._stub = stub
        self._target = target
        self._revision = ""
        self._tasks = Tagged(b"")

    async def tasks(self, request: gateway_pb2.ListTasksRequest) -> gateway_pb2.ListTasksResponse:
        return await ask(self._stub.ListTasks, request)

    async def models(self, request: gateway_pb2.ListModelsRequest) -> gateway_pb2.ListModelsResponse:
        return await ask(self._stub.ListModels, request)

    async def experts(self) -> selector_pb2.ListExpertsResponse:
        return await ask(self._stub.ListExperts, selector_pb2.ListExpertsRequest())

    async def forget(self, expert: str) -> None:
        """Has every replica of the selector remove an expert; it is enough if one of them knew it.

        Raises:
            ServiceError: what a replica raised, after all of them were called.
        """
        there = await addresses(self._target)
        outcomes = await asyncio.gather(*(self._forget_at(address, expert) for address in there))
        known = [outcome for outcome in outcomes if not isinstance(outcome, NotFound)]
        for error in filter(None, known or outcomes):
            raise error

    async def _forget_at(self, address: str, expert: str) -> ServiceError | None:
        async with dial(address) as channel:
            try:
                await ask(SelectorServiceStub(channel).ForgetExpert, selector_pb2.ForgetExpertRequest(name=expert))
            except ServiceError as error:
                return error
        return None

    async def tasks_json(self) -> Tagged:
        reply = await self.tasks(gateway_pb2.ListTasksRequest(known_revision=self._revision))
        if not reply.unchanged:
            self._revision, self._tasks = reply.revision, Tagged(dumps(_tasks(reply)))
        return self._tasks


class CatalogueRoutes:
    """The catalogue over HTTP."""

    def __init__(self, catalogue: Catalogue, audit: Audit) -> None:
        self._catalogue = catalogue
        self._audit = audit

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/v1", tags=["catalogue"], default_response_class=Response)
        router.add_api_route("/tasks", self.tasks, methods=["GET"], **document.TASKS)
        router.add_api_route("/models", self.models, methods=["GET"], **document.MODELS)
        router.add_api_route("/experts", self.experts, methods=["GET"], **document.EXPERTS)
        router.add_api_route("/experts/{name}", self.forget, methods=["DELETE"], **document.NOTHING)
        return router

    async def tasks(self, request: Request) -> Response:
        """The kinds of task that can be planned now; nothing new by `If-None-Match`."""
        return (await self._catalogue.tasks_json()).response(request)

    async def models(
        self,
        request: Request,
        task: Annotated[str, Query(description="Only models for this task.")] = "",
        page_size: Annotated[int, Query(ge=0, le=10_000, description="0 means all.")] = 0,
        page_token: Annotated[str, Query(description="`next_page_token` of the page before.")] = "",
    ) -> Response:
        """Controllers as OpenAI's clients expect them (`data`), and the models that can be chosen now (`models`).

        The first page also has what the operator has laid down about models (`routes`), and who chooses where a request
        does not say (`selection_policy`).
        """
        wanted = {"task": task, "page_size": page_size, "page_token": page_token}
        reply = await self._catalogue.models(decode(gateway_pb2.ListModelsRequest, wanted))
        return Tagged(dumps(_models(reply))).response(request)

    async def experts(self) -> Response:
        """The experts known, awake or not, and what is wrong with any of them."""
        reply = await self._catalogue.experts()
        listed = {"object": "list", "data": [encode(expert) for expert in reply.experts]}
        return Response(dumps(listed), media_type="application/json")

    async def forget(self, name: Annotated[str, Path(description="The expert's name, or host:port.")]) -> Response:
        """Removes an expert that was added, and what is remembered of it: by name, or one of its addresses.

        Once this has returned, none of its tasks is planned. With keys, one made with `--admin` is needed.
        """
        require_admin()
        await self._audit.record("expert.forget", name)
        await self._catalogue.forget(name)
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
    """A controller in OpenAI's shape."""
    return {"id": name, "object": "model", "created": 0, "owned_by": "hugginggpt"}

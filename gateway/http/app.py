"""The HTTP application: routes, errors, unknown query parameters, and HEAD for every GET route."""

from collections.abc import Callable, Collection, Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any, get_args, get_type_hints

from fastapi import APIRouter, Depends, FastAPI, params
from fastapi.exceptions import RequestValidationError
from fastapi.telemetry import TelemetryConfig
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Message, Receive, Scope, Send

from gateway.http.problem import MethodNotAllowed, RouteNotFound, problem_response
from gateway.openapi import document, swagger_ui
from services.common.errors import InvalidRequest, ServiceError


def offers(scope: Scope, method: str) -> bool:
    """Whether any route of the application supports the method for this path."""
    get_scope = {**scope, "method": method}
    return any(route.matches(get_scope)[0] is Match.FULL for route in scope["app"].routes)


class Application(FastAPI):
    """Application that serves HEAD as GET where no route supports it; a streaming response ends after its headers."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD" or offers({**scope, "app": self}, "HEAD"):
            await super().__call__(scope, receive, send)
            return
        get_scope = {**scope, "method": "GET"}
        head_response = _HeadResponse(receive, send)
        try:
            await super().__call__(get_scope, head_response.receive, head_response.send)
        finally:
            scope["route"] = get_scope.get("route")  # for the middleware, which logs and traces by route


class _HeadResponse:
    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._sent = False

    async def receive(self) -> Message:
        """Reports a disconnect once the headers are sent, so that streams end."""
        return {"type": "http.disconnect"} if self._sent else await self._receive()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._send(message)
            await self._send({"type": "http.response.body", "body": b""})
            self._sent = True


_TAGS = [
    {"name": "runs", "description": "Start, follow and cancel runs."},
    {"name": "pipelines", "description": "Named, versioned plans that run without planning."},
    {"name": "pipeline-batches", "description": "One plan over many inputs."},
    {"name": "conversations", "description": "Runs that continue one another."},
    {"name": "files", "description": "Uploaded files, for use in several runs."},
    {"name": "webhooks", "description": "Notifications when a run or batch has ended."},
    {"name": "openai", "description": "OpenAI-compatible chat completions and responses."},
    {"name": "artifacts", "description": "Content of inputs and outputs."},
    {"name": "catalogue", "description": "Available task types, models and experts."},
    {"name": "health", "description": "Liveness and readiness."},
]

_TELEMETRY: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
"""RequestContextMiddleware traces requests; FastAPI's own telemetry would record paths, hosts and error messages."""

_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE")
_METHOD_NOT_ALLOWED = 405


def create_app(version: str, routers: Sequence[APIRouter]) -> FastAPI:
    """Creates the application with all routes, its OpenAPI document and its documentation page."""
    app = Application(
        title="HuggingGPT",
        version=version,
        openapi_tags=_TAGS,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry=_TELEMETRY,
        dependencies=[Depends(reject_unknown_parameters)],
        generate_unique_id_function=document.unique_id,
        exception_handlers={
            ServiceError: _error_response,
            Exception: _error_response,
            HTTPException: _routing_error,
            RequestValidationError: _invalid_parameter,
            ClientDisconnect: _client_disconnected,
        },
    )
    for router in (*routers, swagger_ui.router(lambda: document.document(app))):
        app.include_router(router)
    return app


_OTHER_NAMES = {
    "limit": "page_size",
    "per_page": "page_size",
    "page": "page_token",
    "cursor": "page_token",
    "after": "page_token",
    "status": "state",
    "page_size": "limit",
    "page_token": "after",
}
"""Names of common parameters in other APIs, and in OpenAI's lists where ours are known."""


async def reject_unknown_parameters(request: Request) -> None:
    """Rejects query parameters that the route does not declare, so that a misspelt filter does not return everything.

    Raises:
        InvalidRequest: the error names the parameter and the known one that is nearest to it.
    """
    route = request.scope["route"]
    if not request.scope["query_string"] or not route.include_in_schema or {"openai", "health"} & {*route.tags}:
        return  # pages have their own; clients of OpenAI and probes send some that nothing here depends on
    known = _query_parameters(route.endpoint)
    if unknown := next((name for name in request.query_params if name not in known), None):
        raise InvalidRequest(
            f"unknown query parameter {unknown[:100]}",
            reason="UNKNOWN_FIELD",
            remedy=_nearest(unknown, known),
            port=unknown[:100],
        )


@cache
def _query_parameters(endpoint: Callable[..., Any]) -> Collection[str]:
    hints = get_type_hints(endpoint, include_extras=True)
    return tuple(
        each.alias or name
        for name, hint in hints.items()
        for each in get_args(hint)[1:]
        if isinstance(each, params.Query)
    )


def _nearest(unknown: str, known: Collection[str]) -> str:
    """Remedy that names the nearest known parameter, or all of them."""
    if not known:
        return "leave it out: this path takes no query parameters"
    other = _OTHER_NAMES.get(unknown.lower(), "")
    near = [other] if other in known else get_close_matches(unknown.lower(), known, n=1)
    return f"did you mean {near[0]}?" if near else f"use {', '.join(known)}, or leave it out"


async def _error_response(request: Request, error: Exception) -> Response:
    return problem_response(error, request.url.path)


async def _routing_error(request: Request, error: Exception) -> Response:
    """Renders the framework's own errors: unknown path or unsupported method."""
    if isinstance(error, HTTPException) and error.status_code == _METHOD_NOT_ALLOWED:
        allowed = ", ".join(_allowed(request))
        not_allowed = MethodNotAllowed(f"this path does not support {request.method}", remedy=f"use {allowed}")
        response = problem_response(not_allowed, request.url.path)
        response.headers["allow"] = allowed
        return response
    return problem_response(
        RouteNotFound("no route matches this path", remedy="see GET /docs for the routes"), request.url.path
    )


def _allowed(request: Request) -> list[str]:
    """Methods that any route supports for the path; the framework's error names only those of the first route."""
    found = {method for method in _METHODS if offers(request.scope, method)}
    return [method for method in _METHODS if method in found or (method == "HEAD" and "GET" in found)]


async def _invalid_parameter(request: Request, error: Exception) -> Response:
    first = error.errors()[0] if isinstance(error, RequestValidationError) else {}
    where = str(first.get("loc", ("",))[-1])
    invalid = InvalidRequest(f"{where}: {first.get('msg')}", remedy="see GET /docs", port=where)
    return problem_response(invalid, request.url.path)


async def _client_disconnected(_request: Request, _error: Exception) -> Response:
    """Ends a request whose client has disconnected; nothing is sent."""
    return Response(status_code=499)

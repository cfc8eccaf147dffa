"""HEAD support for every GET route: the same response without its body."""

from collections.abc import Sequence

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.telemetry import TelemetryConfig
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.http.middleware import problem_response
from gateway.http.problem import MethodNotAllowed, RouteNotFound
from gateway.openapi import document, swagger_ui
from services.common.errors import InvalidRequest, ServiceError


def offers(scope: Scope, method: str) -> bool:
    """Whether any route of the application supports the method for this path."""
    get_scope = {**scope, "method": method}
    return any(route.matches(get_scope)[0] is Match.FULL for route in scope["app"].routes)


class HeadMiddleware:
    """Serves HEAD as GET where no route supports it; a streaming response ends after its headers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD" or offers(scope, "HEAD"):
            await self._app(scope, receive, send)
            return
        get_scope = {**scope, "method": "GET"}
        head_response = _HeadResponse(receive, send)
        try:
            await self._app(get_scope, head_response.receive, head_response.send)
        finally:
            scope["route"] = get_scope.get("route")  # for the middleware above, which logs and traces by route


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
    app = FastAPI(
        title="HuggingGPT",
        version=version,
        openapi_tags=_TAGS,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry=_TELEMETRY,
        generate_unique_id_function=document.unique_id,
        exception_handlers={
            ServiceError: _error_response,
            Exception: _error_response,
            HTTPException: _routing_error,
            RequestValidationError: _invalid_parameter,
            ClientDisconnect: _client_disconnected,
        },
    )
    app.add_middleware(HeadMiddleware)
    for router in (*routers, swagger_ui.router(lambda: document.document(app))):
        app.include_router(router)
    return app


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

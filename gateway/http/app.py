"""The HTTP application: its routes, and what it says when there is none."""

from collections.abc import Sequence

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.telemetry import TelemetryConfig
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from gateway.http.head_middleware import Heads, offers
from gateway.http.middleware import problem_response
from gateway.http.problem import Unrouted, WrongMethod
from gateway.openapi import document, swagger_ui
from services.common.errors import InvalidRequest, ServiceError

_TAGS = [
    {"name": "runs", "description": "Ask, watch, stop."},
    {"name": "pipelines", "description": "Plans kept under names, to be run again without planning."},
    {"name": "batches", "description": "One plan over many inputs."},
    {"name": "conversations", "description": "Runs that follow on one another."},
    {"name": "files", "description": "What is kept for later runs."},
    {"name": "webhooks", "description": "Servers of one's own that are told when a run or batch has ended."},
    {"name": "openai", "description": "The same as OpenAI's clients know it."},
    {"name": "artifacts", "description": "What went in and what came out."},
    {"name": "catalogue", "description": "What the house can do now."},
    {"name": "health", "description": "Whether it is there."},
]

_TELEMETRY: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
"""The Door sees to that; the framework's own has paths, hosts and the words of errors in it."""

_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE")
_METHOD_NOT_ALLOWED = 405


def application(version: str, routers: Sequence[APIRouter]) -> FastAPI:
    """All routes of the gateway, its description and its documentation."""
    app = FastAPI(
        title="HuggingGPT",
        version=version,
        openapi_tags=_TAGS,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry=_TELEMETRY,
        exception_handlers={
            ServiceError: _problem,
            Exception: _problem,
            HTTPException: _unrouted,
            RequestValidationError: _invalid,
            ClientDisconnect: _gone,
        },
    )
    app.add_middleware(Heads)
    for router in (*routers, swagger_ui.router(lambda: document.document(app))):
        app.include_router(router)
    return app


async def _problem(request: Request, error: Exception) -> Response:
    return problem_response(error, request.url.path)


async def _unrouted(request: Request, error: Exception) -> Response:
    """The framework's own errors: no such path, or not by this method."""
    if isinstance(error, HTTPException) and error.status_code == _METHOD_NOT_ALLOWED:
        allowed = ", ".join(_allowed(request))
        refusal = WrongMethod(f"{request.method} cannot be done here", remedy=f"use {allowed}")
        response = problem_response(refusal, request.url.path)
        response.headers["allow"] = allowed
        return response
    return problem_response(Unrouted("there is nothing here", remedy="see GET /docs"), request.url.path)


def _allowed(request: Request) -> list[str]:
    """The methods by which any route takes the path: the framework names those of the first route alone."""
    found = {method for method in _METHODS if offers(request.scope, method)}
    return [method for method in _METHODS if method in found or (method == "HEAD" and "GET" in found)]


async def _invalid(request: Request, error: Exception) -> Response:
    first = error.errors()[0] if isinstance(error, RequestValidationError) else {}
    where = str(first.get("loc", ("",))[-1])
    refusal = InvalidRequest(f"{where}: {first.get('msg')}", remedy="see GET /docs", port=where)
    return problem_response(refusal, request.url.path)


async def _gone(_request: Request, _error: Exception) -> Response:
    """Nobody reads it."""
    return Response(status_code=499)

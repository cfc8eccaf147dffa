"""Error responses in the OpenAPI document: an example for each status, and which statuses an operation can return."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from gateway.http.problem import MEDIA_TYPE, TITLES, RangeNotSatisfiable, http_status, problem
from gateway.openapi.schemas import reference
from services.common.errors import (
    AlreadyExists,
    FailedPrecondition,
    InvalidRequest,
    NotFound,
    Overloaded,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
)

_EXAMPLES = (
    InvalidRequest(
        "cannot accept photo.png: its name means image/png, but its content is application/pdf",
        reason="FILE_TYPE",
        remedy="send the right file, or rename it to match its content",
    ),
    Unauthenticated(
        "no API key was sent",
        remedy="send Authorization: Bearer KEY, or set HUGGINGGPT_API_KEY (hugginggpt keys create makes one)",
    ),
    PermissionDenied("this operation requires an admin key", remedy="use a key created with --admin"),
    NotFound("there is no run run_1", reason="RUN", remedy="check the id; it may have been deleted"),
    FailedPrecondition("the run is still active", reason="RUNNING", remedy="cancel it, or wait until it has ended"),
    InvalidRequest("the body is larger than the limit of 100 MB", reason="TOO_LARGE", remedy="send a smaller body"),
    InvalidRequest(
        "the content type text/plain is not supported", reason="CONTENT_TYPE", remedy="send application/json"
    ),
    RangeNotSatisfiable("the requested range is outside the artifact", remedy="request a range within its 88244 bytes"),
    PermissionDenied(
        "this gateway does not serve the host example.org", reason="HOST", remedy="use the gateway's own address"
    ),
    AlreadyExists("the idempotency key was used for a different request", remedy="send another key, or none"),
    Overloaded(
        "the limit of requests per minute is exceeded",
        reason="RATE_LIMIT",
        remedy="retry after the time in Retry-After",
        retry_after=timedelta(seconds=7),
    ),
    Unavailable("the orchestrator is unavailable", remedy="try again later"),
)


def responses() -> dict[str, Any]:
    """Returns the error responses that operations refer to, by component name."""
    named = {_name(http_status(error)): _response(TITLES[http_status(error)], problem(error)) for error in _EXAMPLES}
    return {"Problem": _response("An error, with its cause and a remedy.", problem(_EXAMPLES[0])), **named}


def possible_errors(path: str, method: str, operation: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the error responses of an operation by status; rare errors are covered by 4XX and 5XX.

    Args:
        path: path template, such as /v1/runs/{run_id}.
        method: HTTP method in lower case.
        operation: the operation object built so far.
    """
    named = {parameter["name"] for parameter in operation.get("parameters", ())}
    sends, takes_one = "requestBody" in operation, "{" in path
    applies = {
        400: True,
        401: "health" not in operation["tags"],
        403: sends or method == "delete",
        404: sends or takes_one,
        409: takes_one and method != "get",
        413: sends,
        415: sends,
        416: "206" in operation["responses"],
        421: True,
        422: "idempotency-key" in named,
        429: "health" not in operation["tags"],
        503: True,
    }
    statuses = {str(status): _name(status) for status, does in applies.items() if does}
    every = {**statuses, "4XX": "Problem", "5XX": "Problem"}
    return {status: {"$ref": f"#/components/responses/{name}"} for status, name in every.items()}


def _name(status: int) -> str:
    return f"Problem{status}"


def _response(description: str, example: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "description": description,
        "content": {MEDIA_TYPE: {"schema": reference("Problem"), "example": example}},
    }

"""What the API's description says of errors: which of them an operation may give, with one of each."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from gateway.http.problem import MEDIA_TYPE, TITLES, OutOfRange, http_status, problem
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
        "photo.png is named as image/png but its content is application/pdf",
        reason="FILE_TYPE",
        remedy="send the right file, or name it after its content",
    ),
    Unauthenticated(
        "no key was sent",
        remedy="send authorization: Bearer KEY, or set HUGGINGGPT_API_KEY; hugginggpt keys create makes one",
    ),
    PermissionDenied("the key is no administrator's", remedy="use one made with --admin"),
    NotFound("there is no run run_1", reason="RUN", remedy="check the id; it may have been deleted"),
    FailedPrecondition("the run is under way", reason="RUNNING", remedy="cancel it, or wait for its end"),
    InvalidRequest("the body is larger than the limit of 100 MB", reason="TOO_LARGE", remedy="send less"),
    InvalidRequest("the body is text/plain", reason="CONTENT_TYPE", remedy="send application/json"),
    OutOfRange("the part asked for lies outside", remedy="ask within its 88244 bytes"),
    PermissionDenied("this gateway is not named example.org", reason="HOST", remedy="ask it by its own address"),
    AlreadyExists("the idempotency key stands for another request", remedy="send another key, or none"),
    Overloaded(
        "too many requests in this minute",
        reason="RATE_LIMIT",
        remedy="wait as long as Retry-After says",
        retry_after=timedelta(seconds=7),
    ),
    Unavailable("the orchestrator cannot be reached", remedy="try again in a little while"),
)


def responses() -> dict[str, Any]:
    """The components that operations refer to, by name."""
    named = {_name(http_status(error)): _response(TITLES[http_status(error)], problem(error)) for error in _EXAMPLES}
    return {"Problem": _response("What is wrong, and what to do.", problem(_EXAMPLES[0])), **named}


def possible(path: str, method: str, operation: Mapping[str, Any]) -> dict[str, Any]:
    """The errors of an operation by status; what is rare stands under 4XX and 5XX.

    Args:
        path: as a template, such as /v1/runs/{run_id}.
        method: in lower case.
        operation: the rest of its description.
    """
    named = {parameter["name"] for parameter in operation.get("parameters", ())}
    sends, takes_one = "requestBody" in operation, "{" in path
    applies = {
        400: sends or bool(named),
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

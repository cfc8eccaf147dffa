"""Errors as HTTP tells them: one table of codes, one problem body that OpenAI's clients can read too."""

import math
from collections.abc import Mapping
from typing import Any

from grpc import StatusCode

from gateway.json_encoder import dumps
from services.common.errors import ServiceError

MEDIA_TYPE = "application/problem+json"

_HTTP: Mapping[tuple[StatusCode, str | None], int] = {
    (StatusCode.INVALID_ARGUMENT, None): 400,
    (StatusCode.INVALID_ARGUMENT, "TOO_LARGE"): 413,
    (StatusCode.INVALID_ARGUMENT, "CONTENT_TYPE"): 415,
    (StatusCode.INVALID_ARGUMENT, "HEAD_TOO_LARGE"): 431,
    (StatusCode.OUT_OF_RANGE, None): 400,
    (StatusCode.OUT_OF_RANGE, "RANGE"): 416,
    (StatusCode.UNAUTHENTICATED, None): 401,
    (StatusCode.PERMISSION_DENIED, None): 403,
    (StatusCode.PERMISSION_DENIED, "HOST"): 421,
    (StatusCode.NOT_FOUND, None): 404,
    (StatusCode.ALREADY_EXISTS, None): 422,
    (StatusCode.FAILED_PRECONDITION, None): 409,
    (StatusCode.ABORTED, None): 409,
    (StatusCode.RESOURCE_EXHAUSTED, None): 429,
    (StatusCode.RESOURCE_EXHAUSTED, "OUT_OF_MEMORY"): 503,
    (StatusCode.CANCELLED, None): 499,
    (StatusCode.UNIMPLEMENTED, None): 501,
    (StatusCode.UNIMPLEMENTED, "METHOD"): 405,
    (StatusCode.UNAVAILABLE, None): 503,
    (StatusCode.DEADLINE_EXCEEDED, None): 504,
}

TITLES: Mapping[int, str] = {
    400: "The request cannot be understood",
    401: "Who asks is not known",
    403: "Not allowed",
    404: "There is no such thing",
    405: "This cannot be done here",
    409: "Not in its present state",
    413: "Too large",
    415: "Not a type of content taken here",
    416: "No such part",
    421: "Sent to the wrong server",
    422: "It stands for something else",
    429: "Too much at once",
    431: "Its head is too large",
    499: "The caller went away",
    501: "Not offered",
    503: "Not available now",
    504: "It took too long",
}

_OPENAI_TYPES: Mapping[int, str] = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}

_OPENAI_CODES: Mapping[str, str] = {"MODEL_NOT_FOUND": "model_not_found"}
"""Reasons that OpenAI's clients look for under a name of theirs."""

_SERVER_ERROR = 500


class Unrouted(ServiceError):
    """No route has this path."""

    code, reason = StatusCode.NOT_FOUND, "ROUTE"


class WrongMethod(ServiceError):
    """The route does not know the method."""

    code, reason = StatusCode.UNIMPLEMENTED, "METHOD"


class OutOfRange(ServiceError):
    """The part asked for lies outside."""

    code, reason = StatusCode.OUT_OF_RANGE, "RANGE"


def http_status(error: ServiceError) -> int:
    """What HTTP calls the error."""
    exact = _HTTP.get((error.code, error.reason))
    return exact or _HTTP.get((error.code, None), _SERVER_ERROR)


def problem(error: ServiceError, instance: str = "") -> dict[str, Any]:
    """The body of an error: a problem (RFC 9457) that also has OpenAI's error object."""
    status = http_status(error)
    kind = "server_error" if status >= _SERVER_ERROR else _OPENAI_TYPES.get(status, "invalid_request_error")
    body = {
        "type": f"urn:hugginggpt:problem:{error.reason.lower().replace('_', '-')}",
        "title": TITLES.get(status, "Something broke"),
        "status": status,
        "detail": error.message,
        "code": error.reason,
        "remedy": error.remedy,
        "instance": instance,
        "error": {
            "message": error.message,
            "type": kind,
            "code": _OPENAI_CODES.get(error.reason, error.reason),
            "param": error.port or None,
        },
    }
    return {key: value for key, value in body.items() if value != ""}


def problem_headers(error: ServiceError) -> dict[str, str]:
    """What a problem's response carries beside its body."""
    headers = {"WWW-Authenticate": 'Bearer realm="hugginggpt"'} if error.code is StatusCode.UNAUTHENTICATED else {}
    if error.retry_after is not None:
        headers["Retry-After"] = str(math.ceil(error.retry_after.total_seconds()))
    return headers


def problem_bytes(error: ServiceError, instance: str = "") -> bytes:
    return dumps(problem(error, instance))

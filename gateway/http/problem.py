"""Errors as HTTP responses: the status of each error, and a problem body (RFC 9457) that OpenAI's clients can read."""

import math
from collections.abc import Mapping
from typing import Any

from grpc import StatusCode
from starlette.responses import Response

from gateway.json_encoder import dumps
from services.common.errors import ServiceError

MEDIA_TYPE = "application/problem+json"

_HTTP: Mapping[tuple[StatusCode, str | None], int] = {
    (StatusCode.INVALID_ARGUMENT, None): 400,
    (StatusCode.INVALID_ARGUMENT, "TOO_LARGE"): 413,
    (StatusCode.INVALID_ARGUMENT, "TYPE"): 422,
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
    400: "Invalid request",
    401: "Authentication failed",
    403: "Permission denied",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict with the current state",
    413: "Content too large",
    415: "Unsupported media type",
    416: "Range not satisfiable",
    421: "Misdirected request",
    422: "Unprocessable content",
    429: "Too many requests",
    431: "Request header fields too large",
    499: "Client closed the request",
    501: "Not implemented",
    503: "Service unavailable",
    504: "Deadline exceeded",
}

_OPENAI_TYPES: Mapping[int, str] = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}

_OPENAI_CODES: Mapping[str, str] = {"MODEL_NOT_FOUND": "model_not_found"}
"""Reasons for which OpenAI's clients expect a different code."""

_SERVER_ERROR = 500


class RouteNotFound(ServiceError):
    """No route matches the path."""

    code, reason = StatusCode.NOT_FOUND, "ROUTE"


class MethodNotAllowed(ServiceError):
    """The route does not support the method."""

    code, reason = StatusCode.UNIMPLEMENTED, "METHOD"


class RangeNotSatisfiable(ServiceError):
    """The requested byte range is outside the content."""

    code, reason = StatusCode.OUT_OF_RANGE, "RANGE"


def http_status(error: ServiceError) -> int:
    """Returns the HTTP status of an error."""
    exact = _HTTP.get((error.code, error.reason))
    return exact or _HTTP.get((error.code, None), _SERVER_ERROR)


def problem(error: ServiceError, instance: str = "") -> dict[str, Any]:
    """Returns the body of an error response: a problem (RFC 9457) that contains OpenAI's error object."""
    status = http_status(error)
    kind = "server_error" if status >= _SERVER_ERROR else _OPENAI_TYPES.get(status, "invalid_request_error")
    body = {
        "type": f"urn:hugginggpt:problem:{error.reason.lower().replace('_', '-')}",
        "title": TITLES.get(status, "Internal error"),
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
    """Returns the response headers of an error: WWW-Authenticate and Retry-After where they apply."""
    headers = {"WWW-Authenticate": 'Bearer realm="hugginggpt"'} if error.code is StatusCode.UNAUTHENTICATED else {}
    if error.retry_after is not None:
        headers["Retry-After"] = str(math.ceil(error.retry_after.total_seconds()))
    return headers


def problem_bytes(error: ServiceError, instance: str = "") -> bytes:
    return dumps(problem(error, instance))


_BUG = ServiceError("internal error", remedy="try again; if it persists, search the gateway's log for this request id")


def problem_response(error: Exception, path: str) -> Response:
    """Renders an error as a problem response; unexpected errors reveal no detail."""
    service_error = error if isinstance(error, ServiceError) else _BUG
    return Response(
        problem_bytes(service_error, path), http_status(service_error), problem_headers(service_error), MEDIA_TYPE
    )

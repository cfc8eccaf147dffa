"""Errors of an expert's calls, in words."""

from grpc import StatusCode

from services.common.errors import ServiceError

NOT_LOADED = "NOT_LOADED"
"""Reason of a call that was given up because its model did not load in time."""

_WORDS = {
    StatusCode.ABORTED: "broken off",
    StatusCode.ALREADY_EXISTS: "refused, as it exists already",
    StatusCode.DATA_LOSS: "damaged data",
    StatusCode.FAILED_PRECONDITION: "refused in its present state",
    StatusCode.INTERNAL: "failed inside the expert",
    StatusCode.INVALID_ARGUMENT: "refused as invalid",
    StatusCode.NOT_FOUND: "refused, as there is no such thing",
    StatusCode.OUT_OF_RANGE: "refused, as it is out of range",
    StatusCode.PERMISSION_DENIED: "refused, as it is not permitted",
    StatusCode.RESOURCE_EXHAUSTED: "refused for want of capacity",
    StatusCode.UNAUTHENTICATED: "refused without authentication",
    StatusCode.UNAVAILABLE: "refused as unavailable for now",
}

_BARE = {
    StatusCode.CANCELLED: "the expert cancelled the call",
    StatusCode.UNIMPLEMENTED: "the expert does not implement the method",
}
"""Codes for which the words say all that is known."""


def failure_text(error: ServiceError, seconds: float) -> str:
    """Says what an error means; the code and the reason follow where an expert has chosen them.

    Args:
        error: of a call.
        seconds: the call's limit.
    """
    if error.reason == NOT_LOADED:
        return error.message
    if error.code is StatusCode.DEADLINE_EXCEEDED:
        return f"no answer within {seconds:g} s"
    if is_broken_connection(error):
        return "the connection broke during the call: the process died, or closed it"
    if error.code in _BARE:
        return _BARE[error.code]
    if error.code is StatusCode.UNKNOWN:
        return f"the expert raised an exception that it does not translate: {error.message}"
    at = f" at port {error.port}" if error.port else ""
    return f"{_WORDS[error.code]} ({error.code.name}/{error.reason}){at}: {error.message}"


def is_broken_connection(error: ServiceError) -> bool:
    """Whether the call ended with its connection: an expert that refuses names a remedy."""
    return error.code is StatusCode.UNAVAILABLE and not error.remedy

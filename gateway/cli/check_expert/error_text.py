"""Descriptions of the errors that calls to an expert raise."""

from grpc import StatusCode

from services.common.errors import ServiceError

NOT_LOADED = "NOT_LOADED"
"""Reason of a call abandoned because its model did not load in time."""

_TEXTS = {
    StatusCode.ABORTED: "aborted",
    StatusCode.ALREADY_EXISTS: "refused because it already exists",
    StatusCode.DATA_LOSS: "damaged data",
    StatusCode.FAILED_PRECONDITION: "refused in the expert's present state",
    StatusCode.INTERNAL: "failed inside the expert",
    StatusCode.INVALID_ARGUMENT: "refused as invalid",
    StatusCode.NOT_FOUND: "refused because it does not exist",
    StatusCode.OUT_OF_RANGE: "refused as out of range",
    StatusCode.PERMISSION_DENIED: "refused as not permitted",
    StatusCode.RESOURCE_EXHAUSTED: "refused for lack of capacity",
    StatusCode.UNAUTHENTICATED: "refused as not authenticated",
    StatusCode.UNAVAILABLE: "refused as temporarily unavailable",
}

_COMPLETE_TEXTS = {
    StatusCode.CANCELLED: "the expert cancelled the call",
    StatusCode.UNIMPLEMENTED: "the expert does not implement the method",
}
"""Texts of codes to which the error's message adds nothing."""


def failure_text(error: ServiceError, seconds: float) -> str:
    """Describes an error; adds code and reason where the expert chose them.

    Args:
        error: error of a call.
        seconds: time limit of the call.
    """
    if error.reason == NOT_LOADED:
        return error.message
    if error.code is StatusCode.DEADLINE_EXCEEDED:
        return f"no answer within {seconds:g} s"
    if is_broken_connection(error):
        return "the connection broke during the call: the process died or closed it"
    if error.code in _COMPLETE_TEXTS:
        return _COMPLETE_TEXTS[error.code]
    if error.code is StatusCode.UNKNOWN:
        return f"the expert raised an exception that it does not map to a status: {error.message}"
    at = f" at port {error.port}" if error.port else ""
    return f"{_TEXTS[error.code]} ({error.code.name}/{error.reason}){at}: {error.message}"


def is_broken_connection(error: ServiceError) -> bool:
    """Whether the connection broke: an UNAVAILABLE error that an expert returns itself has a remedy."""
    return error.code is StatusCode.UNAVAILABLE and not error.remedy

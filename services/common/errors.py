"""Expected errors, their gRPC status codes, and what a caller with other candidates does about each.

A ServiceError crosses gRPC as a status with google.rpc details: ErrorInfo (reason, remedy, port) and RetryInfo (delay).

ServiceError
├── InvalidRequest        INVALID_ARGUMENT      the caller must change the request
├── NotFound              NOT_FOUND             TASK, MODEL, RUN, ARTIFACT, EXPERT …
├── AlreadyExists         ALREADY_EXISTS        the name or key is used for something else
├── Unauthenticated       UNAUTHENTICATED       no valid credentials
├── PermissionDenied      PERMISSION_DENIED     not allowed for this caller
├── FailedPrecondition    FAILED_PRECONDITION   LOAD_FAILED, REVISION, POLICY …
├── Overloaded            RESOURCE_EXHAUSTED    retry after retry_after
├── OutOfMemory           RESOURCE_EXHAUSTED    the model does not fit into memory now
├── ModelFailed           INTERNAL              the model failed on this input
├── CorruptData           DATA_LOSS             a reply or stored bytes are not what they should be
├── DeadlineExceeded      DEADLINE_EXCEEDED
├── Unavailable           UNAVAILABLE           retry
└── Unimplemented         UNIMPLEMENTED         not supported by this server
"""

from collections.abc import Sequence
from datetime import timedelta
from enum import Enum
from typing import Any

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc import StatusCode
from grpc_status import rpc_status

from protos.hugginggpt.v1.failure_pb2 import Failure

DOMAIN = "hugginggpt"

MISSING_DEPENDENCY_STATUS = 78
"""Exit status of a process that lacks a Python package, so that a restart cannot help; EX_CONFIG of sysexits.h."""

MESSAGE_BYTES, REMEDY_BYTES = 1_200, 600
"""Longest message and remedy sent over gRPC: as metadata they are encoded twice, and clients accept 8 KiB in all."""


class ServiceError(Exception):
    """An expected failure.

    Args:
        message: what failed and why, for the caller.
        remedy: what the caller or operator can do.
        reason: machine-readable, upper case; by default the class's.
        port: the input or field at fault.
        retry_after: when a retry may succeed.
    """

    code = StatusCode.INTERNAL
    reason = "INTERNAL"

    def __init__(
        self,
        message: str,
        *,
        remedy: str = "",
        reason: str | None = None,
        port: str = "",
        retry_after: timedelta | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.reason = reason or type(self).reason
        self.port = port
        self.retry_after = retry_after


class InvalidRequest(ServiceError):
    code, reason = StatusCode.INVALID_ARGUMENT, "INVALID"


class NotFound(ServiceError):
    code, reason = StatusCode.NOT_FOUND, "NOT_FOUND"


class AlreadyExists(ServiceError):
    code, reason = StatusCode.ALREADY_EXISTS, "ALREADY_EXISTS"


class Unauthenticated(ServiceError):
    code, reason = StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED"


class PermissionDenied(ServiceError):
    code, reason = StatusCode.PERMISSION_DENIED, "PERMISSION_DENIED"


class FailedPrecondition(ServiceError):
    code, reason = StatusCode.FAILED_PRECONDITION, "FAILED_PRECONDITION"


class Overloaded(ServiceError):
    code, reason = StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED"


class OutOfMemory(ServiceError):
    code, reason = StatusCode.RESOURCE_EXHAUSTED, "OUT_OF_MEMORY"


class ModelFailed(ServiceError):
    code, reason = StatusCode.INTERNAL, "MODEL_FAILED"


class CorruptData(ServiceError):
    code, reason = StatusCode.DATA_LOSS, "CORRUPT"


class DeadlineExceeded(ServiceError):
    code, reason = StatusCode.DEADLINE_EXCEEDED, "DEADLINE"


class Unavailable(ServiceError):
    code, reason = StatusCode.UNAVAILABLE, "UNAVAILABLE"


class Unimplemented(ServiceError):
    code, reason = StatusCode.UNIMPLEMENTED, "UNIMPLEMENTED"


_BY_CODE: dict[StatusCode, type[ServiceError]] = {
    error.code: error
    for error in (
        ModelFailed,
        InvalidRequest,
        NotFound,
        AlreadyExists,
        Unauthenticated,
        PermissionDenied,
        FailedPrecondition,
        OutOfMemory,
        Overloaded,
        CorruptData,
        DeadlineExceeded,
        Unavailable,
        Unimplemented,
    )
}


_CODES: dict[int, StatusCode] = {code.value[0]: code for code in StatusCode}

NO_RESPONSE = "the server does not answer"
"""Message for a lost or refused connection; gRPC's own contains internal addresses."""

UNKNOWN_METHOD = "the server does not implement this method"
"""Message for servers of another release, as during a rolling upgrade."""

_TRANSPORT_ERRORS = {
    StatusCode.UNAVAILABLE: (NO_RESPONSE, ""),
    StatusCode.UNIMPLEMENTED: (
        UNKNOWN_METHOD,
        "during an upgrade, wait until it is complete; otherwise check the server's version and address",
    ),
}
"""Message and remedy of errors that do not come from our own servers."""


class RecoveryAction(Enum):
    """What a caller with other candidates does after a failed attempt."""

    RETRY = "retry"
    NEXT_CANDIDATE = "next candidate"
    GIVE_UP = "give up"


_RECOVERY_ACTIONS: dict[tuple[StatusCode, str | None], RecoveryAction] = {
    (StatusCode.UNAVAILABLE, None): RecoveryAction.RETRY,
    (StatusCode.DEADLINE_EXCEEDED, None): RecoveryAction.RETRY,
    # A call cancelled here raises CancelledError; this status comes from a server that drops calls under load.
    (StatusCode.CANCELLED, None): RecoveryAction.RETRY,
    (StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED"): RecoveryAction.RETRY,
    (StatusCode.RESOURCE_EXHAUSTED, "OUT_OF_MEMORY"): RecoveryAction.NEXT_CANDIDATE,
    (StatusCode.INTERNAL, None): RecoveryAction.NEXT_CANDIDATE,
    (StatusCode.UNKNOWN, None): RecoveryAction.NEXT_CANDIDATE,
    (StatusCode.DATA_LOSS, None): RecoveryAction.NEXT_CANDIDATE,
    (StatusCode.NOT_FOUND, "MODEL"): RecoveryAction.NEXT_CANDIDATE,
    (StatusCode.FAILED_PRECONDITION, "LOAD_FAILED"): RecoveryAction.NEXT_CANDIDATE,
    (StatusCode.FAILED_PRECONDITION, "REVISION"): RecoveryAction.NEXT_CANDIDATE,
    (StatusCode.UNIMPLEMENTED, None): RecoveryAction.NEXT_CANDIDATE,
}


def recovery_action(error: ServiceError) -> RecoveryAction:
    """What to do after an error, by code and reason; GIVE_UP for those not in the table."""
    exact = _RECOVERY_ACTIONS.get((error.code, error.reason))
    return exact or _RECOVERY_ACTIONS.get((error.code, None), RecoveryAction.GIVE_UP)


def to_status(error: ServiceError) -> grpc.Status:
    """The gRPC status of an error, with its details as grpc-status-details-bin."""
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN)
    message, remedy = _truncate(error.message, MESSAGE_BYTES), _truncate(error.remedy, REMEDY_BYTES)
    info.metadata.update({key: value for key, value in (("remedy", remedy), ("port", error.port)) if value})
    details = [_pack(info)]
    if error.retry_after is not None:
        delay = duration_pb2.Duration()
        delay.FromTimedelta(error.retry_after)
        details.append(_pack(error_details_pb2.RetryInfo(retry_delay=delay)))
    return rpc_status.to_status(status_pb2.Status(code=error.code.value[0], message=message, details=details))


def to_failure(error: ServiceError) -> Failure:
    """The message of an error, as part of a response or of a stored run."""
    failure = Failure(
        reason=error.reason, message=error.message, remedy=error.remedy, port=error.port, code=error.code.value[0]
    )
    if error.retry_after is not None:
        failure.retry_after.FromTimedelta(error.retry_after)
    return failure


def from_failure(failure: Failure) -> ServiceError:
    """The error that a message describes, such as that of one item of a call."""
    code = _CODES.get(failure.code, StatusCode.UNKNOWN)
    retry_after = failure.retry_after.ToTimedelta() if failure.HasField("retry_after") else None
    result = _BY_CODE.get(code, ServiceError)(
        failure.message, remedy=failure.remedy, reason=failure.reason, port=failure.port, retry_after=retry_after
    )
    result.code = code
    return result


def from_rpc(error: grpc.aio.AioRpcError) -> ServiceError:
    """The error that a server raised, or that represents a transport failure."""
    info, retry_after = error_details_pb2.ErrorInfo(), None
    for detail in _details(error):
        if detail.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
            detail.Unpack(info)
        elif detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR):
            retry = error_details_pb2.RetryInfo()
            detail.Unpack(retry)
            retry_after = retry.retry_delay.ToTimedelta()
    kind = _BY_CODE.get(error.code(), ServiceError)
    transport = _TRANSPORT_ERRORS.get(error.code()) if not info.reason else None
    message, remedy = transport or (error.details() or error.code().name, "")
    result = kind(
        message,
        remedy=info.metadata.get("remedy", remedy),
        reason=info.reason or (None if error.code() in _BY_CODE else error.code().name),
        port=info.metadata.get("port", ""),
        retry_after=retry_after,
    )
    result.code = error.code()
    return result


def _details(error: grpc.aio.AioRpcError) -> Sequence[any_pb2.Any]:
    try:
        status = rpc_status.from_call(error)  # type: ignore[arg-type]  # an AioRpcError has what from_call reads
    except ValueError:  # the transport replaced the code, so the details belong to another error
        return ()
    return status.details if status else ()


def _truncate(text: str, limit: int) -> str:
    content = text.encode()
    return text if len(content) <= limit else content[:limit].decode(errors="ignore") + "…"


def _pack(message: Any) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed

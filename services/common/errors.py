"""Expected failures, and how they cross gRPC: a status code, and a reason, remedy, port and delay beside it.

ServiceError
├── InvalidRequest        INVALID_ARGUMENT      the caller must change the request
├── NotFound              NOT_FOUND             TASK, MODEL, RUN, ARTIFACT, EXPERT …
├── AlreadyExists         ALREADY_EXISTS        the name or key stands for something else
├── Unauthenticated       UNAUTHENTICATED       who asks is not known
├── PermissionDenied      PERMISSION_DENIED     not for this caller
├── FailedPrecondition    FAILED_PRECONDITION   LOAD_FAILED, REVISION, POLICY …
├── Overloaded            RESOURCE_EXHAUSTED    come back after retry_after
├── OutOfMemory           RESOURCE_EXHAUSTED    this model does not fit now
├── ModelFailed           INTERNAL              the model broke on this input
├── CorruptData           DATA_LOSS             a reply or stored bytes are not what they should be
├── DeadlineExceeded      DEADLINE_EXCEEDED
├── Unavailable           UNAVAILABLE           try again
└── Unimplemented         UNIMPLEMENTED         not here
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

DOMAIN = "hugginggpt"

MESSAGE_BYTES, REMEDY_BYTES = 1_200, 600
"""Most of an error's texts that cross gRPC: they travel as metadata, encoded twice, in the 8 KiB a client takes."""


class ServiceError(Exception):
    """Expected failure; message and remedy are for the caller."""

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


LOST = "the server does not answer"
"""Of a connection that is lost or was never made: gRPC's own words name addresses of the house."""

UNKNOWN_CALL = "a server of this house does not know the call"
"""While parts of the house are replaced one after the other, some are of an earlier release."""


_BARE = {
    StatusCode.UNAVAILABLE: (LOST, ""),
    StatusCode.UNIMPLEMENTED: (UNKNOWN_CALL, "if it is being upgraded, wait; else check its version and its address"),
}
"""Message and remedy of what no program of ours has said."""


class Verdict(Enum):
    """What a caller that has other candidates does about a failure."""

    RETRY = "retry"
    NEXT_CANDIDATE = "next candidate"
    GIVE_UP = "give up"


_VERDICTS: dict[tuple[StatusCode, str | None], Verdict] = {
    (StatusCode.UNAVAILABLE, None): Verdict.RETRY,
    (StatusCode.DEADLINE_EXCEEDED, None): Verdict.RETRY,
    # What we cancel ourselves never comes as a status: this is a server that drops calls because too many wait.
    (StatusCode.CANCELLED, None): Verdict.RETRY,
    (StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED"): Verdict.RETRY,
    (StatusCode.RESOURCE_EXHAUSTED, "OUT_OF_MEMORY"): Verdict.NEXT_CANDIDATE,
    (StatusCode.INTERNAL, None): Verdict.NEXT_CANDIDATE,
    (StatusCode.UNKNOWN, None): Verdict.NEXT_CANDIDATE,
    (StatusCode.DATA_LOSS, None): Verdict.NEXT_CANDIDATE,
    (StatusCode.NOT_FOUND, "MODEL"): Verdict.NEXT_CANDIDATE,
    (StatusCode.FAILED_PRECONDITION, "LOAD_FAILED"): Verdict.NEXT_CANDIDATE,
    (StatusCode.FAILED_PRECONDITION, "REVISION"): Verdict.NEXT_CANDIDATE,
    (StatusCode.UNIMPLEMENTED, None): Verdict.NEXT_CANDIDATE,
}


def verdict(error: ServiceError) -> Verdict:
    """The one table that says what a failed attempt leads to; what it does not name is given up."""
    exact = _VERDICTS.get((error.code, error.reason))
    return exact or _VERDICTS.get((error.code, None), Verdict.GIVE_UP)


def to_status(error: ServiceError) -> grpc.Status:
    """The error with reason, remedy, port and retry delay, as grpc-status-details-bin carries them."""
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN)
    message, remedy = _cut(error.message, MESSAGE_BYTES), _cut(error.remedy, REMEDY_BYTES)
    info.metadata.update({key: value for key, value in (("remedy", remedy), ("port", error.port)) if value})
    details = [_packed(info)]
    if error.retry_after is not None:
        delay = duration_pb2.Duration()
        delay.FromTimedelta(error.retry_after)
        details.append(_packed(error_details_pb2.RetryInfo(retry_delay=delay)))
    return rpc_status.to_status(status_pb2.Status(code=error.code.value[0], message=message, details=details))


def from_rpc(error: grpc.aio.AioRpcError) -> ServiceError:
    """The error a peer raised, or what the transport made of it."""
    info, retry_after = error_details_pb2.ErrorInfo(), None
    for detail in _details(error):
        if detail.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
            detail.Unpack(info)
        elif detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR):
            retry = error_details_pb2.RetryInfo()
            detail.Unpack(retry)
            retry_after = retry.retry_delay.ToTimedelta()
    kind = _BY_CODE.get(error.code(), ServiceError)
    bare = _BARE.get(error.code()) if not info.reason else None
    message, remedy = bare or (error.details() or error.code().name, "")
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
        status = rpc_status.from_call(error)  # type: ignore[arg-type]  # an AioRpcError is a call as far as this reads it
    except ValueError:  # the transport took another code, and the details speak of what it replaced
        return ()
    return status.details if status else ()


def _cut(text: str, limit: int) -> str:
    content = text.encode()
    return text if len(content) <= limit else content[:limit].decode(errors="ignore") + "…"


def _packed(message: Any) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed

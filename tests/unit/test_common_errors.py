import grpc
import pytest
from grpc import StatusCode
from grpc.aio import AioRpcError, Metadata

from services.common import errors
from services.common.errors import ServiceError, Verdict, from_rpc, verdict


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.Unavailable("x"), Verdict.RETRY),
        (errors.Overloaded("x"), Verdict.RETRY),
        (errors.DeadlineExceeded("x"), Verdict.RETRY),
        (errors.OutOfMemory("x"), Verdict.NEXT_CANDIDATE),
        (errors.ModelFailed("x"), Verdict.NEXT_CANDIDATE),
        (errors.CorruptData("x"), Verdict.NEXT_CANDIDATE),
        (errors.Unimplemented("x"), Verdict.NEXT_CANDIDATE),
        (errors.NotFound("x", reason="MODEL"), Verdict.NEXT_CANDIDATE),
        (errors.NotFound("x", reason="ARTIFACT"), Verdict.GIVE_UP),
        (errors.FailedPrecondition("x", reason="LOAD_FAILED"), Verdict.NEXT_CANDIDATE),
        (errors.FailedPrecondition("x", reason="REVISION"), Verdict.NEXT_CANDIDATE),
        (errors.FailedPrecondition("x", reason="POLICY"), Verdict.GIVE_UP),
        (errors.InvalidRequest("x"), Verdict.GIVE_UP),
        (errors.PermissionDenied("x"), Verdict.GIVE_UP),
        (errors.AlreadyExists("x"), Verdict.GIVE_UP),
    ],
    ids=lambda value: f"{type(value).__name__}-{value.reason}" if isinstance(value, ServiceError) else value.name,
)
def test_what_a_failure_leads_to(error: ServiceError, expected: Verdict) -> None:
    assert verdict(error) is expected


@pytest.mark.parametrize(
    ("code", "message", "expected"),
    [
        (StatusCode.UNAVAILABLE, "the server does not answer", Verdict.RETRY),
        (StatusCode.UNIMPLEMENTED, "a server of this house does not know the call", Verdict.NEXT_CANDIDATE),
        (StatusCode.CANCELLED, "CANCELLED", Verdict.RETRY),
        (StatusCode.UNKNOWN, "UNKNOWN", Verdict.NEXT_CANDIDATE),
        (StatusCode.ABORTED, "ABORTED", Verdict.GIVE_UP),
    ],
)
def test_what_a_bare_status_leads_to(code: grpc.StatusCode, message: str, expected: Verdict) -> None:
    error = from_rpc(AioRpcError(code, Metadata(), Metadata()))
    assert (error.code, error.message) == (code, message)
    assert verdict(error) is expected

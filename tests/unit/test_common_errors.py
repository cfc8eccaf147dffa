import grpc
import pytest
from grpc import StatusCode
from grpc.aio import AioRpcError, Metadata

from services.common import errors
from services.common.errors import RecoveryAction, ServiceError, from_rpc, recovery_action


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.Unavailable("x"), RecoveryAction.RETRY),
        (errors.Overloaded("x"), RecoveryAction.RETRY),
        (errors.DeadlineExceeded("x"), RecoveryAction.RETRY),
        (errors.OutOfMemory("x"), RecoveryAction.NEXT_CANDIDATE),
        (errors.ModelFailed("x"), RecoveryAction.NEXT_CANDIDATE),
        (errors.CorruptData("x"), RecoveryAction.NEXT_CANDIDATE),
        (errors.Unimplemented("x"), RecoveryAction.NEXT_CANDIDATE),
        (errors.NotFound("x", reason="MODEL"), RecoveryAction.NEXT_CANDIDATE),
        (errors.NotFound("x", reason="ARTIFACT"), RecoveryAction.GIVE_UP),
        (errors.FailedPrecondition("x", reason="LOAD_FAILED"), RecoveryAction.NEXT_CANDIDATE),
        (errors.FailedPrecondition("x", reason="REVISION"), RecoveryAction.NEXT_CANDIDATE),
        (errors.FailedPrecondition("x", reason="POLICY"), RecoveryAction.GIVE_UP),
        (errors.InvalidRequest("x"), RecoveryAction.GIVE_UP),
        (errors.PermissionDenied("x"), RecoveryAction.GIVE_UP),
        (errors.AlreadyExists("x"), RecoveryAction.GIVE_UP),
    ],
    ids=lambda value: f"{type(value).__name__}-{value.reason}" if isinstance(value, ServiceError) else value.name,
)
def test_recovery_action_of_an_error(error: ServiceError, expected: RecoveryAction) -> None:
    assert recovery_action(error) is expected


@pytest.mark.parametrize(
    ("code", "message", "expected"),
    [
        (StatusCode.UNAVAILABLE, "the server does not answer", RecoveryAction.RETRY),
        (StatusCode.UNIMPLEMENTED, "the server does not implement this method", RecoveryAction.NEXT_CANDIDATE),
        (StatusCode.CANCELLED, "CANCELLED", RecoveryAction.RETRY),
        (StatusCode.UNKNOWN, "UNKNOWN", RecoveryAction.NEXT_CANDIDATE),
        (StatusCode.ABORTED, "ABORTED", RecoveryAction.GIVE_UP),
    ],
)
def test_recovery_action_of_a_status_without_details(
    code: grpc.StatusCode, message: str, expected: RecoveryAction
) -> None:
    error = from_rpc(AioRpcError(code, Metadata(), Metadata()))
    assert error.code == code
    assert error.message == message
    assert recovery_action(error) is expected

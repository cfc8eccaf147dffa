"""Access log of gRPC calls."""

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from grpc import StatusCode
from structlog.testing import capture_logs

from gateway.grpc.interceptors import CallLog
from services.common.errors import NotFound


async def logged(error: BaseException | None, explicit_code: StatusCode | None = None) -> Any:
    """Access log entry of a call that raises the error, if one is given."""

    async def answer(request: Any, context: Any) -> None:
        if error:
            raise error

    async def found(_: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(answer)

    details = SimpleNamespace(method="/hugginggpt.v1.GatewayService/GetRun")
    handler = await CallLog().intercept_service(found, details)
    call = handler.unary_unary(SimpleNamespace(run_id="run_ab"), SimpleNamespace(code=lambda: explicit_code))
    with capture_logs() as lines, pytest.raises(type(error)) if error else nullcontext():
        await call
    (line,) = lines
    return line


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (None, "OK"),
        (NotFound("no run"), "NOT_FOUND"),
        (asyncio.CancelledError(), "CANCELLED"),
        (grpc.aio.InternalError("the caller has gone"), "CANCELLED"),
        (ValueError("a secret"), "INTERNAL"),
    ],
)
async def test_call_is_logged_with_its_code_and_without_content(error: BaseException | None, code: str) -> None:
    line = await logged(error)
    assert line.pop("seconds") >= 0
    assert line == {
        "event": "call",
        "log_level": "info",
        "method": "hugginggpt.v1.GatewayService/GetRun",
        "code": code,
        "run_id": "run_ab",
    }


async def test_aborted_call_is_logged_with_its_code() -> None:
    assert (await logged(grpc.aio.AbortError(), StatusCode.ABORTED))["code"] == "ABORTED"

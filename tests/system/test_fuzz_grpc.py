"""Fuzzed messages to the gateway's gRPC methods end with expected status codes, and the gateway keeps serving."""

import asyncio
from collections import Counter
from random import Random
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc import StatusCode

from protos.hugginggpt.v1 import gateway_pb2
from protos.hugginggpt.v1.gateway_pb2_grpc import GatewayServiceStub
from tests.support.fuzzing import mutate, random_message
from tests.system.conftest import LocalStack

pytestmark = pytest.mark.slow

SERVICE = gateway_pb2.DESCRIPTOR.services_by_name["GatewayService"]
CALLS = 60
SECONDS = 20.0

CLIENT_ERROR, TRIES = "Internal error from Core", 3
"""What grpc's client reports, now and then, if a call ends while it is still sending; no server sends this text."""

EXPECTED = frozenset(
    {
        *(StatusCode.OK, StatusCode.INVALID_ARGUMENT, StatusCode.NOT_FOUND, StatusCode.FAILED_PRECONDITION),
        *(StatusCode.ALREADY_EXISTS, StatusCode.RESOURCE_EXHAUSTED, StatusCode.OUT_OF_RANGE),
        *(StatusCode.PERMISSION_DENIED, StatusCode.CANCELLED),
    }
)
"""Status codes that a caller can act on; the test itself causes CANCELLED."""


@pytest.mark.parametrize("broken", [False, True], ids=["valid", "mutated"])
@pytest.mark.parametrize("method", tuple(SERVICE.methods), ids=lambda method: method.name)
async def test_fuzzed_messages_end_with_expected_status_codes(
    local_stack: LocalStack, method: MethodDescriptor, broken: bool
) -> None:
    random = Random(f"{method.name} {broken}")  # reproducible
    seen = Counter[StatusCode]()
    async with grpc.aio.insecure_channel(local_stack.grpc) as channel:
        for number in range(CALLS):
            sent = [_sent(method, random, broken=broken) for _ in range(random.randint(1, 3))]
            for _ in range(TRIES):
                code, details = await _code(channel, method, sent)
                if details != CLIENT_ERROR:
                    break
            assert code in EXPECTED, (number, code, details, sent)
            seen[code] += 1
        await GatewayServiceStub(channel).ListTasks(gateway_pb2.ListTasksRequest(), timeout=SECONDS)
    assert seen.total() == CALLS


def _sent(method: MethodDescriptor, random: Random, *, broken: bool) -> bytes:
    kind: type[Message] = GetMessageClass(method.input_type)
    content = random_message(kind, random).SerializeToString()
    return mutate(content, random) if broken else content


async def _code(channel: grpc.aio.Channel, method: MethodDescriptor, sent: list[bytes]) -> tuple[StatusCode, str]:
    """Status of a call; a stream is cancelled after three messages."""
    shape = f"{'stream' if method.client_streaming else 'unary'}_{'stream' if method.server_streaming else 'unary'}"
    path = f"/{SERVICE.full_name}/{method.name}"
    call: Any = getattr(channel, shape)(path, bytes, bytes)(
        iter(sent) if method.client_streaming else sent[0], timeout=SECONDS
    )
    try:
        if not method.server_streaming:
            await call
            return StatusCode.OK, ""
        for _ in range(3):
            if await call.read() == grpc.aio.EOF:
                return await call.code(), await call.details()
        call.cancel()
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    except asyncio.CancelledError:
        return StatusCode.CANCELLED, ""
    return StatusCode.CANCELLED, ""

"""Today's experts, asked by a selector and an orchestrator of the last release."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from google.rpc import error_details_pb2
from grpc import StatusCode
from grpc_status import rpc_status

from protos.released import TASKS
from services.common.artifacts import ArtifactStore
from services.common.channel import dial
from tests.support import previous_release
from tests.support.expert_host import Gate, Host, hosts, reached
from tests.support.previous_release import elder
from tests.system.conftest import ROOT, House

pytestmark = pytest.mark.slow

SIGN = ROOT / "tests" / "data" / "sign.png"
WHO = (("hugginggpt-caller-bin", elder("Caller")(tenant="default", policy="DATA_POLICY_LOCAL").SerializeToString()),)


@pytest.fixture
async def lite(http: httpx.AsyncClient) -> AsyncIterator[Any]:
    """Of the house, asked past it."""
    listed = (await http.get("/v1/experts")).json()["data"]
    ((address,),) = (one["addresses"] for one in listed if one["name"] == "lite")
    async with dial(address) as channel:
        yield previous_release.stub("ExpertService", channel)


async def test_it_describes_itself_by_the_ports_that_were_released(lite: Any) -> None:
    told = await lite.Describe(elder("DescribeRequest")(), timeout=10)
    assert (told.expert, len(told.load.loaded) > 0) == ("lite", True)
    released = {spec["name"]: spec for spec in json.loads(TASKS.read_text(encoding="utf-8"))}
    for spec in told.tasks:
        was = released[spec.name]
        assert [port.name for port in spec.inputs] == [port["name"] for port in was["inputs"]]
        assert [port.name for port in spec.outputs] == [port["name"] for port in was["outputs"]]
    again = await lite.Describe(elder("DescribeRequest")(known_revision=told.revision), timeout=10)
    assert (again.unchanged, list(again.tasks), list(again.models)) == (True, [], [])


async def test_it_takes_and_gives_values_as_they_were(house: House, lite: Any) -> None:
    store = ArtifactStore.open((house.home / "artifacts").as_uri())
    sign = await store.put("default", SIGN.read_bytes(), media_type="image/png", name="sign.png")
    request = elder("InferRequest")(task="image-to-text", model="rapidocr")
    request.inputs["image"].artifact.ParseFromString(sign.SerializeToString())
    call = lite.Infer(request, timeout=30, metadata=WHO)
    reply = await call
    assert "happy" in reply.outputs["text"].text.lower()
    assert reply.usage.elapsed.ToNanoseconds() > 0
    trailer = dict(await call.trailing_metadata())
    assert trailer["expert-queue"] == "0"
    assert "rapidocr" in trailer["expert-loaded"].split(",")


# ---------------------------------------------------------------- a host whose models the test holds


@pytest.fixture
async def gate() -> Gate:
    return Gate()


@pytest.fixture
async def host(tmp_path: Path, gate: Gate) -> AsyncIterator[Host]:
    async with hosts(tmp_path) as start:
        yield await start(gate)


@pytest.fixture
def expert(host: Host) -> Any:
    return previous_release.stub("ExpertService", host.channel)


def saying(**fields: Any) -> Any:
    return elder("InferRequest")(task="saying", inputs={"text": elder("Value")(text="hello")}, **fields)


async def test_it_tells_progress(gate: Gate, expert: Any) -> None:
    call = expert.Infer(saying(model="m", call_id="call-1"), timeout=10, metadata=WHO)
    await reached(gate.entered)
    steps = expert.Progress(elder("ProgressRequest")(call_ids=["call-1"]), timeout=10, metadata=WHO)
    step = await steps.read()
    assert (step.call_id, step.fraction, step.message) == ("call-1", 0.5, "half")
    gate.release.set()
    assert (await call).outputs["text"].text == "hello"


async def test_it_notices_that_a_call_is_cancelled(gate: Gate, expert: Any) -> None:
    call = expert.Infer(saying(model="m"), timeout=10, metadata=WHO)
    await reached(gate.entered)
    call.cancel()
    await reached(gate.noticed)
    gate.release.set()


@pytest.mark.parametrize(
    ("fields", "code", "reason"),
    [
        ({"model": "nobody's"}, StatusCode.NOT_FOUND, "MODEL"),
        ({"model": "other", "revision": "2"}, StatusCode.FAILED_PRECONDITION, "REVISION"),
        ({"model": "other", "parameters_json": '{"times":9}'}, StatusCode.INVALID_ARGUMENT, "INVALID"),
    ],
)
async def test_it_refuses_for_the_reasons_that_were(
    expert: Any, fields: dict[str, str], code: StatusCode, reason: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await expert.Infer(saying(**fields), timeout=10, metadata=WHO)
    status = rpc_status.from_call(caught.value)  # type: ignore[arg-type]  # an AioRpcError is a call as far as this reads it
    info = error_details_pb2.ErrorInfo()
    assert status
    status.details[0].Unpack(info)
    assert (caught.value.code(), info.reason) == (code, reason)

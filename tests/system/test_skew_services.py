"""Services are replaced one after the other: today's beside those of the last release, which lose what was added."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from protos.hugginggpt.v1 import orchestrator_pb2, orchestrator_pb2_grpc
from protos.hugginggpt.v1.types_pb2 import RUN_STATE_COMPLETED
from services.common.server import serving
from services.orchestrator.__main__ import orchestrator
from tests.fakes import ScriptedOrchestrator
from tests.service.conftest import among
from tests.support import previous_release
from tests.support.gateway import Doors, opened_doors
from tests.support.orchestrator import END, Cast, House, candidate, connected, ref, registered, states, task

pytestmark = pytest.mark.slow

SERVICES = {"planner": "PlannerService", "selector": "SelectorService", "responder": "ResponderService"}


@pytest.fixture
async def older(peers: dict[str, str]) -> AsyncIterator[dict[str, str]]:
    """Everybody whom an orchestrator calls, as they were."""
    async with AsyncExitStack() as stack:
        services = {**SERVICES, "expert": "ExpertService"}
        yield {
            name: await stack.enter_async_context(previous_release.between(service, peers[name]))
            for name, service in services.items()
        }


@pytest.fixture
async def house(cast: Cast, older: dict[str, str], tmp_path: Path) -> AsyncIterator[House]:
    """Today's orchestrator among them."""
    settings = among(older, tmp_path)
    cast.candidates[:] = [candidate("model", older["expert"])]
    async with orchestrator(settings) as running, connected(running) as stub:
        yield House(cast, stub, settings)


async def test_an_orchestrator_gets_along_with_all_whom_it_calls(house: House) -> None:
    house.cast.plan(task(1), task(2, text=ref(1)), END)
    house.cast.candidates[0].expert_version = "of which the last release knows nothing"
    events = await house.run()
    assert states(events) == {1: "SUCCEEDED", 2: "SUCCEEDED"}
    assert events[-1].run_ended.state == RUN_STATE_COMPLETED
    (second,) = (event.task_ended.result for event in events if event.task_id == 2 and event.HasField("task_ended"))
    assert (second.outputs["text"].text, second.by.expert_version) == ("hello!!", "")
    assert "so it is" in [event.answer_chunk.text for event in events]


@pytest.fixture
async def doors(tmp_path: Path) -> AsyncIterator[Doors]:
    """Today's gateway before an orchestrator that was."""
    add = orchestrator_pb2_grpc.add_OrchestratorServiceServicer_to_server
    described = orchestrator_pb2.DESCRIPTOR.services_by_name["OrchestratorService"]
    async with (
        serving(registered(add, ScriptedOrchestrator()), described) as behind,
        previous_release.between("OrchestratorService", f"127.0.0.1:{behind.port}") as older,
        opened_doors(tmp_path, settings={"orchestrator": older}) as doors,
    ):
        yield doors


async def test_a_gateway_asks_an_orchestrator_of_then(doors: Doors) -> None:
    answered = await doors.http.post("/v1/runs", json={"request": "do it"}, headers={"prefer": "wait=10"})
    assert (answered.status_code, answered.json()["state"]) == (200, "completed")


async def test_what_it_does_not_know_is_refused_with_a_remedy(doors: Doors) -> None:
    refused = await doors.http.get("/v1/pipelines")
    assert (refused.status_code, refused.json()["code"]) == (501, "UNIMPLEMENTED")
    assert "upgraded" in refused.json()["remedy"]

"""What a run says of its models reaches the selector."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from protos.hugginggpt.v1.event_pb2 import RunEvent
from protos.hugginggpt.v1.model_pb2 import Constraints
from services.orchestrator.__main__ import orchestrator as serve_orchestrator
from services.orchestrator.settings import Settings
from services.selector.__main__ import selector as serve_selector
from services.selector.settings import Settings as SelectorSettings
from tests.fakes import FakeExpert, card
from tests.support.orchestrator import END, OrchestratorUnderTest, ScriptedPeers, connected, task

TASK = "summarization"


@pytest.fixture
async def choosing(peers: ScriptedPeers, settings: Settings, tmp_path: Path) -> AsyncIterator[OrchestratorUnderTest]:
    """A house whose selector is the real one."""
    models = [card("near", TASK, region="eu-west-1", license="mit"), card("far", TASK, region="us-east-1")]
    peers.plan(task(1), END)
    async with FakeExpert("text", models).serving() as address:
        told = SelectorSettings(listen="127.0.0.1:0", experts=address, artifacts_url=(tmp_path / "store").as_uri())
        async with serve_selector(told) as running:
            ours = settings.model_copy(update={"selector": f"127.0.0.1:{running.port}"})
            async with serve_orchestrator(ours) as orchestrating, connected(orchestrating) as stub:
                yield OrchestratorUnderTest(peers, stub, ours)


def first(events: list[RunEvent]) -> str:
    return next(event.task_selected.candidates[0].model_id for event in events if event.HasField("task_selected"))


@pytest.mark.parametrize(
    ("constraints", "model"),
    [
        (Constraints(regions=["EU"]), "near"),
        (Constraints(regions=["us-east"]), "far"),
        (Constraints(licenses=["MIT"]), "near"),
        (Constraints(allowed=["far"]), "far"),
    ],
)
async def test_a_run_s_constraints_hold_for_its_tasks(
    choosing: OrchestratorUnderTest, constraints: Constraints, model: str
) -> None:
    assert first(await choosing.run(constraints=constraints)) == model


async def test_constraints_that_no_model_satisfies_are_named(choosing: OrchestratorUnderTest) -> None:
    events = await choosing.run(constraints=Constraints(regions=["jp"]))
    failures = [event.task_ended.result.failure for event in events if event.HasField("task_ended")]
    assert [(failure.reason, "region jp" in failure.message) for failure in failures] == [("MODEL", True)]

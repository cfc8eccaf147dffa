"""Model constraints of a run in the selector."""

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
async def real_selector_run(
    peers: ScriptedPeers, settings: Settings, tmp_path: Path
) -> AsyncIterator[OrchestratorUnderTest]:
    """An orchestrator with the real selector."""
    models = [card("near", TASK, region="eu-west-1", license="mit"), card("far", TASK, region="us-east-1")]
    peers.plan(task(1), END)
    async with FakeExpert("text", models).serving() as address:
        selector_settings = SelectorSettings(
            listen="127.0.0.1:0", experts=address, artifacts_url=(tmp_path / "store").as_uri()
        )
        async with serve_selector(selector_settings) as running:
            orchestrator_settings = settings.model_copy(update={"selector": f"127.0.0.1:{running.port}"})
            async with (
                serve_orchestrator(orchestrator_settings) as running_orchestrator,
                connected(running_orchestrator) as stub,
            ):
                yield OrchestratorUnderTest(peers, stub, orchestrator_settings)


def selected_model(events: list[RunEvent]) -> str:
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
async def test_constraints_of_a_run_apply_to_its_tasks(
    real_selector_run: OrchestratorUnderTest, constraints: Constraints, model: str
) -> None:
    assert selected_model(await real_selector_run.run(constraints=constraints)) == model


async def test_error_names_constraint_that_no_model_satisfies(real_selector_run: OrchestratorUnderTest) -> None:
    events = await real_selector_run.run(constraints=Constraints(regions=["jp"]))
    failures = [event.task_ended.result.failure for event in events if event.HasField("task_ended")]
    assert [(failure.reason, "region jp" in failure.message) for failure in failures] == [("MODEL", True)]

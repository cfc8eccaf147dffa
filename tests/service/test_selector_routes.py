"""The selector's server with a routing table."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from protos.hugginggpt.internal.v1 import selector_pb2
from protos.hugginggpt.internal.v1 import selector_pb2_grpc as rpc
from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1 import gateway_pb2
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_OPEN, Caller
from protos.hugginggpt.v1.expert_pb2 import DescribeResponse
from protos.hugginggpt.v1.model_pb2 import (
    CANDIDATE_ROLE_FALLBACK,
    CANDIDATE_ROLE_PRIMARY,
    CANDIDATE_ROLE_SHADOW,
    SELECTION_POLICY_LLM,
    SELECTION_POLICY_RANK,
)
from protos.hugginggpt.v1.plan_pb2 import CONTROLLER_LLM, CONTROLLER_RANK, CONTROLLER_ROUTED
from protos.hugginggpt.v1.task_pb2 import Task
from services.common import call_context
from services.common.channel import connect
from services.common.errors import FailedPrecondition
from services.llm.settings import LlmSettings
from services.selector.__main__ import selector as serve_selector
from services.selector.catalog import ExpertCatalog
from services.selector.routing_status import watching
from services.selector.routing_table import Route, RoutingTable
from services.selector.settings import Settings
from tests.fakes import FakeExpert, ScriptedLLM, TextReply, card

TASK = "object-detection"
CARDS = [card(name, TASK) for name in ("faces", "people", "things")]
TABLE = """\
format: hugginggpt/routes/1
forbidden: [leaky]
tasks:
  object-detection:
    candidates:
      - {model: people, weight: 1}
      - {model: faces, weight: 1}
    shadow: things
  depth-estimation:
    model: midas
"""


@asynccontextmanager
async def serve_selector_with_table(folder: Path, table: str, **settings: Any) -> AsyncIterator[Any]:
    """A selector with a routing table and one expert."""
    (folder / "routes.yaml").write_text(table)
    fields = {
        "listen": "127.0.0.1:0",
        "routes": str(folder / "routes.yaml"),
        "artifacts_url": (folder / "artifacts").as_uri(),
    }
    async with (
        FakeExpert("vision", CARDS).serving() as address,
        serve_selector(Settings(**{**fields, "experts": address, **settings})) as running,
        connect(f"127.0.0.1:{running.port}") as channel,
    ):
        yield rpc.SelectorServiceStub(channel)


async def select(stub: Any, run: str = "", **fields: Any) -> selector_pb2.SelectResponse:
    with call_context.use_caller(Caller(tenant="default", policy=DATA_POLICY_OPEN, run_id=run)):
        request = selector_pb2.SelectRequest(task=Task(task=TASK), **fields)
        reply: selector_pb2.SelectResponse = await stub.Select(request, timeout=10, metadata=call_context.metadata())
    return reply


def endpoint(llm: ScriptedLLM) -> LlmSettings:
    return LlmSettings(base_url=llm.base_url, model="scripted", attempts=1)


async def warning(logs: Sequence[Any], number: int) -> str:
    """Waits for the warning of this number; returns its problem."""
    async with asyncio.timeout(10):
        while len(logs) < number:  # noqa: ASYNC110  # the log has no event to wait for
            await asyncio.sleep(0)
    return str(logs[number - 1]["problem"])


async def test_routing_table_is_listed_with_the_models(tmp_path: Path) -> None:
    async with serve_selector_with_table(tmp_path, TABLE) as stub:
        reply = await stub.ListModels(gateway_pb2.ListModelsRequest(page_size=1), timeout=10)
        second_page = await stub.ListModels(gateway_pb2.ListModelsRequest(page_token=reply.next_page_token), timeout=10)
        first = await stub.ListModels(gateway_pb2.ListModelsRequest(task=TASK), timeout=10)
    general, depth, detection = reply.routes
    assert general.task == ""
    assert [model.id for model in general.forbidden] == ["leaky"]
    assert list(general.problems) == ["no expert offers leaky now"]
    assert depth.model.id == "midas"
    assert list(depth.problems) == ["no expert offers depth-estimation now"]
    assert [(model.id, model.weight) for model in detection.candidates] == [("people", 1), ("faces", 1)]
    assert detection.shadow.id == "things"
    assert list(detection.problems) == []
    assert [route.task for route in first.routes] == ["", TASK]
    assert not second_page.routes


async def test_replicas_select_the_same_model_for_a_run(tmp_path: Path) -> None:
    async with (
        serve_selector_with_table(tmp_path, TABLE) as first,
        serve_selector_with_table(tmp_path, TABLE) as second,
    ):
        by_first = [(await select(first, f"run_{number}")).candidates[0].candidate.model_id for number in range(20)]
        by_second = [(await select(second, f"run_{number}")).candidates[0].candidate.model_id for number in range(20)]
    assert by_first == by_second
    assert set(by_first) == {"people", "faces"}


async def test_shadow_model_is_last_with_its_role(tmp_path: Path) -> None:
    async with serve_selector_with_table(tmp_path, TABLE) as stub:
        reply = await select(stub)
    assert [selected.candidate.role for selected in reply.candidates] == [
        CANDIDATE_ROLE_PRIMARY,
        CANDIDATE_ROLE_FALLBACK,
        CANDIDATE_ROLE_SHADOW,
    ]
    assert reply.candidates[-1].candidate.model_id == "things"
    assert reply.decision.controller == CONTROLLER_ROUTED


async def test_llm_is_called_with_a_table_only_if_the_request_selects_it(tmp_path: Path) -> None:
    table = "format: hugginggpt/routes/1\ntasks: {object-detection: {forbidden: [faces]}}\n"
    answer = TextReply(json.dumps({"id": "things", "reason": "It fits."}))
    async with (
        ScriptedLLM.serving([answer]) as llm,
        serve_selector_with_table(tmp_path, table, llm=endpoint(llm)) as stub,
    ):
        reply = await stub.ListModels(gateway_pb2.ListModelsRequest(), timeout=10)
        by_default, by_llm = await select(stub), await select(stub, selection_policy=SELECTION_POLICY_LLM)
    assert reply.selection_policy == SELECTION_POLICY_RANK
    assert by_default.decision.controller == CONTROLLER_RANK
    assert by_llm.decision.controller == CONTROLLER_LLM
    assert [selected.candidate.model_id for selected in by_llm.candidates] == ["things", "people"]


async def test_llm_is_not_called_when_the_table_decides(tmp_path: Path) -> None:
    async with ScriptedLLM.serving([]) as llm, serve_selector_with_table(tmp_path, TABLE, llm=endpoint(llm)) as stub:
        reply = await select(stub, selection_policy=SELECTION_POLICY_LLM)
    assert reply.decision.controller == CONTROLLER_ROUTED
    assert not llm.requests


async def test_llm_is_the_default_without_a_table(tmp_path: Path) -> None:
    async with (
        ScriptedLLM.serving([]) as llm,
        serve_selector_with_table(tmp_path, "", routes="", llm=endpoint(llm)) as stub,
    ):
        reply = await stub.ListModels(gateway_pb2.ListModelsRequest(), timeout=10)
    assert reply.selection_policy == SELECTION_POLICY_LLM
    assert list(reply.routes) == []


async def test_invalid_table_raises_at_startup(tmp_path: Path) -> None:
    with pytest.raises(FailedPrecondition, match=r"routes\.yaml, line 2: task: unknown key"):
        async with serve_selector_with_table(tmp_path, "format: hugginggpt/routes/1\ntask: {}\n"):
            pass


async def test_unknown_names_in_the_table_are_logged_once() -> None:
    catalog = ExpertCatalog(standard_tasks())
    catalog.add_address("vision:1")
    table = RoutingTable({TASK: Route(forbidden=["faces"]), "depth-estimation": Route()})
    with capture_logs() as logs:
        async with watching(table, catalog, settled_seconds=0):
            assert await warning(logs, 2) == "no expert offers depth-estimation now"
            assert await warning(logs, 3) == "no expert offers object-detection now"
            catalog.record_reply("vision:1", DescribeResponse(expert="vision", models=CARDS[1:]))
            assert await warning(logs, 4) == "no expert offers faces for object-detection now"

"""The selector's server with fake expert servers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from protos.hugginggpt.internal.v1 import selector_pb2
from protos.hugginggpt.internal.v1 import selector_pb2_grpc as rpc
from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1 import gateway_pb2
from protos.hugginggpt.v1.artifact_pb2 import MODALITY_TEXT, Value
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_OPEN, Caller
from protos.hugginggpt.v1.expert_pb2 import DescribeRequest, DescribeResponse, ExpertLoad
from protos.hugginggpt.v1.model_pb2 import (
    CANDIDATE_ROLE_FALLBACK,
    CANDIDATE_ROLE_PRIMARY,
    INFERENCE_MODE_REMOTE,
    MODEL_LOCATION_EXTERNAL,
    MODEL_STATE_LOADABLE,
    SELECTION_POLICY_LLM,
)
from protos.hugginggpt.v1.plan_pb2 import CONTROLLER_PINNED, CONTROLLER_RANK
from protos.hugginggpt.v1.task_pb2 import Argument, Port, Task, TaskSpec
from services.common import errors
from services.common.channel import connect
from services.common.server import serving
from services.selector.__main__ import SERVICE
from services.selector.address_sources import SourceResult, parse
from services.selector.catalog import ExpertCatalog
from services.selector.discovery import Discovery
from tests.fakes import FakeExpert, card
from tests.support.selector import FAST, SelectorUnderTest, StartSelector, selector_starter

OCR = card("ocr", "image-to-text")
MOOD = card("mood", "text-classification", "Sentiment: happy or sad.")
LANGUAGE = card("tongue", "text-classification", "The language a text is written in.")
TEXT = Port(name="text", modality=MODALITY_TEXT, required=True)
GREETING = TaskSpec(name="greeting", description="Greets.", inputs=[TEXT], outputs=[TEXT])


@pytest.fixture
def start_selector(tmp_path: Path) -> StartSelector:
    return selector_starter(tmp_path)


@pytest.fixture
async def selector(start_selector: StartSelector) -> AsyncIterator[SelectorUnderTest]:
    async with start_selector() as found:
        yield found


async def test_expert_running_at_startup_is_known_to_the_first_call(start_selector: StartSelector) -> None:
    async with FakeExpert("vision", [OCR]).serving() as address, start_selector(experts=address) as selector:
        assert list((await selector.tasks())["image-to-text"].experts) == ["vision"]


class SlowToDescribe(FakeExpert):
    """Answers Describe once the test allows it."""

    def __init__(self) -> None:
        super().__init__("shy", [OCR])
        self.describe_called, self.may_answer = asyncio.Event(), asyncio.Event()

    async def Describe(self, request: DescribeRequest, context: Any) -> DescribeResponse:
        self.describe_called.set()
        await self.may_answer.wait()
        return await super().Describe(request, context)


async def test_startup_waits_for_descriptions_of_known_addresses() -> None:
    slow, catalog = SlowToDescribe(), ExpertCatalog(standard_tasks())
    async with slow.serving() as address, AsyncExitStack() as stack, asyncio.timeout(10):
        discovery = Discovery(parse(address), catalog, FAST)
        entering = asyncio.create_task(stack.enter_async_context(discovery.running()))
        await slow.describe_called.wait()
        assert not entering.done()
        slow.may_answer.set()
        await entering
        assert "image-to-text" in catalog.view.tasks


async def test_new_address_file_adds_the_tasks_of_its_expert(selector: SelectorUnderTest) -> None:
    assert await selector.tasks() == {}
    async with FakeExpert("polite", [card("hello", "greeting")], specs=[GREETING]).serving() as address:
        selector.add("polite", address)
        await selector.until_planned("greeting")
        assert (await selector.tasks())["greeting"].spec == GREETING


async def test_dns_name_is_resolved(start_selector: StartSelector) -> None:
    async with FakeExpert("vision", [OCR]).serving() as address:
        port = address.rpartition(":")[2]
        async with start_selector(experts=f"dns:///localhost:{port}") as selector:
            await selector.until_planned("image-to-text")
            assert address in (await selector.experts())["vision"].addresses


class FailingOnce:
    """A source of addresses whose first read raises an unexpected error."""

    name, seconds = "failing", 0.02

    def __init__(self, address: str) -> None:
        self._address = address
        self._failed = False

    async def read(self) -> SourceResult:
        if not self._failed:
            self._failed = True
            raise OSError("too many open files")
        return SourceResult(frozenset({self._address}))


async def test_discovery_continues_after_unexpected_error_of_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = ExpertCatalog(standard_tasks())
    async with (
        FakeExpert("vision", [OCR]).serving() as first_address,
        FakeExpert("mood", [MOOD]).serving() as second_address,
    ):
        discovery = Discovery([FailingOnce(first_address), *parse(second_address)], catalog, FAST)
        async with asyncio.timeout(10), discovery.running():
            revision = ""
            while "image-to-text" not in catalog.view.tasks:
                revision = await catalog.wait_for_revision(revision) or revision
            assert "text-classification" in catalog.view.tasks


async def test_unreachable_expert_is_removed_after_forget_seconds(start_selector: StartSelector) -> None:
    async with start_selector(forget_seconds=0.2) as selector:
        async with FakeExpert("vision", [OCR]).serving() as address:
            selector.add("vision", address)
            await selector.until_planned("image-to-text")
        await selector.until_planned()
        assert f"{address} does not answer" in (await selector.experts())["vision"].problems[0]


async def test_expert_stays_in_catalogue_while_it_restarts(selector: SelectorUnderTest) -> None:
    async def is_unreachable() -> bool:
        return bool((await selector.experts())["vision"].problems)

    async def answers() -> bool:
        return not await is_unreachable()

    async with FakeExpert("vision", [OCR]).serving() as address:
        selector.add("vision", address)
        await selector.until_planned("image-to-text")
    await selector.until(is_unreachable)
    assert "image-to-text" in await selector.tasks()
    (selected,) = (await selector.select(Task(task="image-to-text"))).candidates
    assert [endpoint.address for endpoint in selected.endpoints] == [address]
    async with FakeExpert("vision", [OCR, MOOD]).serving(listen=address):
        await selector.until_planned("image-to-text", "text-classification")
        await selector.until(answers)


async def test_expert_that_scales_to_zero_is_restored_after_selector_restart(start_selector: StartSelector) -> None:
    async with start_selector(forget_seconds=0) as selector:
        async with FakeExpert("vision", [OCR], scales_to_zero=True).serving() as address:
            selector.add("vision", address)
            await selector.until_planned("image-to-text")

        async def is_dormant() -> bool:
            return (await selector.tasks())["image-to-text"].dormant

        await selector.until(is_dormant)
        selector.remove("vision")
    async with start_selector() as selector:
        assert (await selector.experts())["vision"].dormant
        (selected,) = (await selector.select(Task(task="image-to-text"))).candidates
        assert selected.candidate.dormant
        assert not selected.endpoints
        await selector.stub.ForgetExpert(selector_pb2.ForgetExpertRequest(name="vision"), timeout=5)
        assert await selector.tasks() == {}
    async with start_selector() as selector:
        assert await selector.experts() == {}


async def test_expert_that_scales_to_zero_becomes_dormant_when_its_address_is_removed(
    selector: SelectorUnderTest,
) -> None:
    async with FakeExpert("vision", [OCR], scales_to_zero=True).serving() as address:
        selector.add("vision", address)
        await selector.until_planned("image-to-text")
        selector.remove("vision")

        async def is_dormant() -> bool:
            return (await selector.experts())["vision"].dormant

        await selector.until(is_dormant)


async def test_dormant_expert_is_running_once_it_answers(start_selector: StartSelector) -> None:
    vision = FakeExpert("vision", [OCR], scales_to_zero=True)
    async with vision.serving() as address, start_selector(experts=address) as selector:
        await selector.until_planned("image-to-text")
    async with start_selector() as selector:
        assert (await selector.tasks())["image-to-text"].dormant
        async with vision.serving() as new_address:
            selector.add("vision", new_address)

            async def is_running() -> bool:
                return not (await selector.tasks())["image-to-text"].dormant

            await selector.until(is_running)
            (selected,) = (await selector.select(Task(task="image-to-text"))).candidates
            assert [endpoint.address for endpoint in selected.endpoints] == [new_address]


async def test_spec_that_differs_from_the_standard_is_omitted_and_reported(start_selector: StartSelector) -> None:
    invalid = TaskSpec(name="image-to-text", inputs=[TEXT], outputs=[TEXT])
    expert = FakeExpert("divergent", [OCR, MOOD], specs=[invalid])
    async with expert.serving() as address, start_selector(experts=address) as selector:
        assert list(await selector.tasks()) == ["text-classification"]
        assert "differs from the standard" in (await selector.experts())["divergent"].problems[0]


async def test_replicas_are_endpoints_of_one_candidate(start_selector: StartSelector) -> None:
    first_expert, second_expert = FakeExpert("lite", [MOOD]), FakeExpert("lite", [MOOD])
    first_expert.load, second_expert.load = (
        ExpertLoad(waiting=1, running=2, loaded=["mood"], free_bytes=5),
        ExpertLoad(),
    )
    async with (
        first_expert.serving() as first,
        second_expert.serving() as second,
        start_selector(experts=f"{first},{second}") as selector,
    ):
        (selected,) = (await selector.select(Task(task="text-classification"))).candidates
        by_address = {endpoint.address: endpoint for endpoint in selected.endpoints}
        assert set(by_address) == {first, second}
        assert by_address[first].loaded
        assert by_address[first].queue == 3
        assert by_address[first].free_bytes == 5
        assert not by_address[second].loaded
        assert by_address[second].queue == 0


async def test_candidates_are_ranked_with_a_reason(start_selector: StartSelector) -> None:
    async with FakeExpert("lite", [LANGUAGE, MOOD]).serving() as address, start_selector(experts=address) as selector:
        task = Task(task="text-classification", source="do", parameters_json='{"top_k":1}')
        answer = await selector.select(task, request="is it happy or sad", selection_policy=SELECTION_POLICY_LLM)
        (found,) = answer.candidates
        assert found.candidate.model_id == "mood"
        assert found.candidate.role == CANDIDATE_ROLE_PRIMARY
        assert "happy" in found.candidate.reason
        assert answer.decision.controller == CONTROLLER_RANK
        assert answer.decision.fell_back_because
        assert answer.spec.name == "text-classification"
        answer = await selector.select(Task(task="text-classification"))
        roles = [found.candidate.role for found in answer.candidates]
        assert roles == [CANDIDATE_ROLE_PRIMARY, CANDIDATE_ROLE_FALLBACK]
        answer = await selector.select(Task(task="text-classification", pinned_model="mood"))
        assert answer.decision.controller == CONTROLLER_PINNED


async def test_instruction_counts_as_text_of_the_task(start_selector: StartSelector) -> None:
    artist = card("artist", "image-to-image", "Paints in any style.")
    editor = card("editor", "image-to-image", "Turns pictures grey, blurs and sharpens them.")
    task = Task(task="image-to-image", arguments={"instruction": Argument(value=Value(text="make it grey"))})
    async with FakeExpert("vision", [artist, editor]).serving() as address, start_selector(experts=address) as selector:
        assert (await selector.select(task)).candidates[0].candidate.model_id == "editor"


async def test_call_without_data_policy_gets_no_external_model(start_selector: StartSelector) -> None:
    outside = card("cloud", "text-classification", location=MODEL_LOCATION_EXTERNAL)
    async with FakeExpert("remote", [outside]).serving() as address, start_selector(experts=address) as selector:
        task = Task(task="text-classification")
        for caller in (None, Caller(tenant="default")):
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await selector.select(task, caller)
            error = errors.from_rpc(raised.value)
            assert error.code == grpc.StatusCode.FAILED_PRECONDITION
            assert error.reason == "POLICY"
        answer = await selector.select(task, Caller(policy=DATA_POLICY_OPEN), inference_mode=INFERENCE_MODE_REMOTE)
        assert answer.candidates[0].candidate.location == MODEL_LOCATION_EXTERNAL


@pytest.mark.parametrize(
    ("task", "code", "reason"),
    [
        (Task(task="nothing"), grpc.StatusCode.NOT_FOUND, "TASK"),
        (Task(task="text-classification", pinned_model="x"), grpc.StatusCode.NOT_FOUND, "MODEL"),
        (Task(task="text-classification", parameters_json="[1]"), grpc.StatusCode.INVALID_ARGUMENT, "INVALID"),
        (Task(task="text-classification", parameters_json="{"), grpc.StatusCode.INVALID_ARGUMENT, "INVALID"),
        (Task(), grpc.StatusCode.INVALID_ARGUMENT, "INVALID"),
    ],
)
async def test_error_has_code_reason_and_remedy(
    start_selector: StartSelector, task: Task, code: grpc.StatusCode, reason: str
) -> None:
    async with FakeExpert("lite", [MOOD]).serving() as address, start_selector(experts=address) as selector:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await selector.select(task)
        error = errors.from_rpc(raised.value)
        assert error.code == code
        assert error.reason == reason
        assert error.remedy


async def test_running_or_unknown_expert_cannot_be_forgotten(start_selector: StartSelector) -> None:
    async with FakeExpert("lite", [MOOD]).serving() as address, start_selector(experts=address) as selector:
        for name, reason in (("lite", "EXPERT_RUNNING"), ("unknown", "EXPERT")):
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await selector.stub.ForgetExpert(selector_pb2.ForgetExpertRequest(name=name), timeout=5)
            assert errors.from_rpc(raised.value).reason == reason


async def test_current_revision_of_the_caller_is_answered_unchanged(start_selector: StartSelector) -> None:
    lite = FakeExpert("lite", [MOOD])
    async with lite.serving() as address, start_selector(experts=address) as selector:
        known = (await selector.stub.ListTasks(gateway_pb2.ListTasksRequest(), timeout=5)).revision
        tasks = await selector.stub.ListTasks(gateway_pb2.ListTasksRequest(known_revision=known), timeout=5)
        models = await selector.stub.ListModels(gateway_pb2.ListModelsRequest(known_revision=known), timeout=5)
        assert tasks.unchanged
        assert len(tasks.tasks) == 0
        assert tasks.revision == known
        assert models.unchanged
        assert len(models.models) == 0
        assert models.revision == known

        async def changed() -> bool:
            return not (
                await selector.stub.ListModels(gateway_pb2.ListModelsRequest(known_revision=known), timeout=5)
            ).unchanged

        lite.offer([card("mood", "text-classification", state=MODEL_STATE_LOADABLE)])
        await selector.until(changed)
        assert (await selector.stub.ListTasks(gateway_pb2.ListTasksRequest(known_revision=known), timeout=5)).unchanged


async def test_models_are_listed_in_pages(start_selector: StartSelector) -> None:
    cards = [card(f"m{number}", "text-classification") for number in range(5)]
    async with FakeExpert("lite", [*cards, OCR]).serving() as address, start_selector(experts=address) as selector:
        seen: list[str] = []
        token = known = ""
        while token or not seen:
            request = gateway_pb2.ListModelsRequest(
                task="text-classification", page_size=2, page_token=token, known_revision=known if token else ""
            )
            reply = await selector.stub.ListModels(request, timeout=5)
            known = reply.revision
            assert 0 < len(reply.models) <= 2
            seen += [model.id for model in reply.models]
            token = reply.next_page_token
        assert seen == ["m0", "m1", "m2", "m3", "m4"]
        everything = await selector.stub.ListModels(gateway_pb2.ListModelsRequest(), timeout=5)
        assert everything.models[0].task == "image-to-text"
        assert everything.models[0].expert == "lite"
        assert len(everything.models) == 6
        assert everything.next_page_token == ""


async def test_tasks_are_listed_in_pages(start_selector: StartSelector) -> None:
    cards = [OCR, card("mood", "text-classification"), card("short", "summarization")]
    async with FakeExpert("lite", cards).serving() as address, start_selector(experts=address) as selector:
        first = await selector.stub.ListTasks(gateway_pb2.ListTasksRequest(page_size=1), timeout=5)
        rest = gateway_pb2.ListTasksRequest(page_token=first.next_page_token, known_revision=first.revision)
        second = await selector.stub.ListTasks(rest, timeout=5)
    assert [task.spec.name for task in first.tasks] == ["image-to-text"]
    assert [task.spec.name for task in second.tasks] == ["summarization", "text-classification"]
    assert not second.next_page_token


async def test_experts_are_listed_in_pages(start_selector: StartSelector) -> None:
    a, b = FakeExpert("a", [OCR]), FakeExpert("b", [OCR])
    async with (
        a.serving() as first_address,
        b.serving() as second_address,
        start_selector(experts=f"{first_address},{second_address}") as selector,
    ):
        first = await selector.stub.ListExperts(selector_pb2.ListExpertsRequest(page_size=1), timeout=5)
        rest = selector_pb2.ListExpertsRequest(page_token=first.next_page_token)
        second = await selector.stub.ListExperts(rest, timeout=5)
    assert [expert.name for expert in first.experts] == ["a"]
    assert [expert.name for expert in second.experts] == ["b"]
    assert not second.next_page_token


@pytest.mark.parametrize("invalid", [{"page_token": "!"}, {"page_token": "e30="}, {"page_size": -1}])
async def test_invalid_page_is_invalid_argument(selector: SelectorUnderTest, invalid: dict[str, object]) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await selector.stub.ListModels(gateway_pb2.ListModelsRequest(**invalid), timeout=5)  # type: ignore[arg-type]  # fields of the message
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_every_watcher_receives_every_revision(selector: SelectorUnderTest) -> None:
    async with AsyncExitStack() as stack:
        watches = [selector.stub.WatchCatalogue(selector_pb2.WatchCatalogueRequest(), timeout=20) for _ in range(20)]
        streams = [aiter(watch) for watch in watches]
        async with asyncio.timeout(10):
            first = {(await anext(stream)).revision for stream in streams}
            address = await stack.enter_async_context(FakeExpert("lite", [MOOD]).serving())
            selector.add("lite", address)
            second = {(await anext(stream)).revision for stream in streams}
        assert len(first) == 1
        assert len(second) == 1
        assert len(first | second) == 2
        for watch in watches:
            watch.cancel()


async def test_watch_ends_when_the_selector_stops(start_selector: StartSelector) -> None:
    async with AsyncExitStack() as clients:
        async with asyncio.timeout(4), start_selector() as selector:  # shorter than its drain timeout
            channel = await clients.enter_async_context(connect(selector.address))
            stub = rpc.SelectorServiceStub(channel)
            stream = aiter(stub.WatchCatalogue(selector_pb2.WatchCatalogueRequest(), timeout=20))
            await anext(stream)
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await anext(stream)
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_addresses_without_an_expert_are_reported(start_selector: StartSelector) -> None:
    async with serving(lambda _: None, SERVICE) as server:
        not_an_expert, unused = f"127.0.0.1:{server.port}", "127.0.0.1:1"
        async with start_selector(experts=f"{not_an_expert},{unused}") as selector:
            experts = await selector.experts()
            assert f"{not_an_expert} answers, but is not an expert" in experts[not_an_expert].problems[0]
            assert f"{unused} does not answer" in experts[unused].problems[0]


async def test_invalid_experts_setting_raises_at_startup(start_selector: StartSelector) -> None:
    with pytest.raises(errors.InvalidRequest, match="nonsense is not host:port"):
        async with start_selector(experts="nonsense"):
            pass

"""The selector's server among real expert servers."""

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
from services.selector.address_sources import Listing, parse
from services.selector.catalog import Catalog
from services.selector.discovery import Discovery
from tests.fakes import FakeExpert, card
from tests.support.selector import QUICK, Open, Room, selectors

OCR = card("ocr", "image-to-text")
MOOD = card("mood", "text-classification", "Sentiment: happy or sad.")
TONGUE = card("tongue", "text-classification", "The language a text is written in.")
TEXT = Port(name="text", modality=MODALITY_TEXT, required=True)
GREETING = TaskSpec(name="greeting", description="Greets.", inputs=[TEXT], outputs=[TEXT])


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    return selectors(tmp_path)


@pytest.fixture
async def room(opened: Open) -> AsyncIterator[Room]:
    async with opened() as found:
        yield found


async def test_an_expert_that_is_there_at_the_start_is_known_from_the_first_call(opened: Open) -> None:
    async with FakeExpert("vision", [OCR]).serving() as address, opened(experts=address) as room:
        assert list((await room.tasks())["image-to-text"].experts) == ["vision"]


class Shy(FakeExpert):
    """Says what it is when it is allowed to."""

    def __init__(self) -> None:
        super().__init__("shy", [OCR])
        self.was_asked, self.may_speak = asyncio.Event(), asyncio.Event()

    async def Describe(self, request: DescribeRequest, context: Any) -> DescribeResponse:
        self.was_asked.set()
        await self.may_speak.wait()
        return await super().Describe(request, context)


async def test_nothing_is_answered_before_the_experts_have_been_asked() -> None:
    shy, catalog = Shy(), Catalog(standard_tasks())
    async with shy.serving() as address, AsyncExitStack() as stack, asyncio.timeout(10):
        discovery = Discovery(parse(address), catalog, QUICK)
        entering = asyncio.create_task(stack.enter_async_context(discovery.running()))
        await shy.was_asked.wait()
        assert not entering.done()
        shy.may_speak.set()
        await entering
        assert "image-to-text" in catalog.view.tasks


async def test_a_new_address_file_makes_its_tasks_plannable(room: Room) -> None:
    assert await room.tasks() == {}
    async with FakeExpert("polite", [card("hello", "greeting")], specs=[GREETING]).serving() as address:
        room.add("polite", address)
        await room.until_planned("greeting")
        assert (await room.tasks())["greeting"].spec == GREETING


async def test_a_name_in_the_dns_is_resolved(opened: Open) -> None:
    async with FakeExpert("vision", [OCR]).serving() as address:
        port = address.rpartition(":")[2]
        async with opened(experts=f"dns:///localhost:{port}") as room:
            await room.until_planned("image-to-text")
            assert address in (await room.experts())["vision"].addresses


class FailingOnce:
    """A source of addresses whose first look raises what nobody expects."""

    name, seconds = "failing", 0.02

    def __init__(self, address: str) -> None:
        self._address = address
        self._failed = False

    async def look(self) -> Listing:
        if not self._failed:
            self._failed = True
            raise OSError("too many open files")
        return Listing(frozenset({self._address}))


async def test_discovery_continues_after_a_source_raises_unexpectedly(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = Catalog(standard_tasks())
    async with FakeExpert("vision", [OCR]).serving() as one, FakeExpert("mood", [MOOD]).serving() as two:
        discovery = Discovery([FailingOnce(one), *parse(two)], catalog, QUICK)
        async with asyncio.timeout(10), discovery.running():
            revision = ""
            while "image-to-text" not in catalog.view.tasks:
                revision = await catalog.beyond(revision) or revision
            assert "text-classification" in catalog.view.tasks


async def test_an_expert_that_dies_leaves_after_a_while(opened: Open) -> None:
    async with opened(forget_seconds=0.2) as room:
        async with FakeExpert("vision", [OCR]).serving() as address:
            room.add("vision", address)
            await room.until_planned("image-to-text")
        await room.until_planned()
        assert f"{address} does not answer" in (await room.experts())["vision"].problems[0]


async def test_an_expert_that_restarts_is_waited_for(room: Room) -> None:
    async def is_silent() -> bool:
        return bool((await room.experts())["vision"].problems)

    async def answers() -> bool:
        return not await is_silent()

    async with FakeExpert("vision", [OCR]).serving() as address:
        room.add("vision", address)
        await room.until_planned("image-to-text")
    await room.until(is_silent)
    assert "image-to-text" in await room.tasks()
    (candidate,) = (await room.select(Task(task="image-to-text"))).candidates
    assert [endpoint.address for endpoint in candidate.endpoints] == [address]
    async with FakeExpert("vision", [OCR, MOOD]).serving(listen=address):
        await room.until_planned("image-to-text", "text-classification")
        await room.until(answers)


async def test_an_expert_that_may_sleep_outlives_the_selector(opened: Open) -> None:
    async with opened(forget_seconds=0) as room:
        async with FakeExpert("vision", [OCR], may_sleep=True).serving() as address:
            room.add("vision", address)
            await room.until_planned("image-to-text")

        async def sleeps() -> bool:
            return (await room.tasks())["image-to-text"].dormant

        await room.until(sleeps)
        room.remove("vision")
    async with opened() as room:
        assert (await room.experts())["vision"].dormant
        (candidate,) = (await room.select(Task(task="image-to-text"))).candidates
        assert candidate.dormant
        assert not candidate.endpoints
        await room.stub.ForgetExpert(selector_pb2.ForgetExpertRequest(name="vision"), timeout=5)
        assert await room.tasks() == {}
    async with opened() as room:
        assert await room.experts() == {}


async def test_one_that_may_sleep_is_taken_to_sleep_when_its_address_is_taken_away(room: Room) -> None:
    async with FakeExpert("vision", [OCR], may_sleep=True).serving() as address:
        room.add("vision", address)
        await room.until_planned("image-to-text")
        room.remove("vision")

        async def sleeps() -> bool:
            return (await room.experts())["vision"].dormant

        await room.until(sleeps)


async def test_a_sleeper_wakes(opened: Open) -> None:
    vision = FakeExpert("vision", [OCR], may_sleep=True)
    async with vision.serving() as address, opened(experts=address) as room:
        await room.until_planned("image-to-text")
    async with opened() as room:
        assert (await room.tasks())["image-to-text"].dormant
        async with vision.serving() as elsewhere:
            room.add("vision", elsewhere)

            async def awake() -> bool:
                return not (await room.tasks())["image-to-text"].dormant

            await room.until(awake)
            (candidate,) = (await room.select(Task(task="image-to-text"))).candidates
            assert [endpoint.address for endpoint in candidate.endpoints] == [elsewhere]


async def test_a_spec_that_disagrees_is_left_out_and_reported(opened: Open) -> None:
    wrong = TaskSpec(name="image-to-text", inputs=[TEXT], outputs=[TEXT])
    expert = FakeExpert("odd", [OCR, MOOD], specs=[wrong])
    async with expert.serving() as address, opened(experts=address) as room:
        assert list(await room.tasks()) == ["text-classification"]
        assert "disagrees with the standard" in (await room.experts())["odd"].problems[0]


async def test_replicas_are_endpoints_of_one_candidate(opened: Open) -> None:
    one, two = FakeExpert("lite", [MOOD]), FakeExpert("lite", [MOOD])
    one.load, two.load = ExpertLoad(waiting=1, running=2, loaded=["mood"], free_bytes=5), ExpertLoad()
    async with one.serving() as first, two.serving() as second, opened(experts=f"{first},{second}") as room:
        (candidate,) = (await room.select(Task(task="text-classification"))).candidates
        by_address = {endpoint.address: endpoint for endpoint in candidate.endpoints}
        assert set(by_address) == {first, second}
        assert (by_address[first].loaded, by_address[first].queue, by_address[first].free_bytes) == (True, 3, 5)
        assert (by_address[second].loaded, by_address[second].queue) == (False, 0)


async def test_the_answer_is_ranked_and_explained(opened: Open) -> None:
    async with FakeExpert("lite", [TONGUE, MOOD]).serving() as address, opened(experts=address) as room:
        task = Task(task="text-classification", source="do", parameters_json='{"top_k":1}')
        answer = await room.select(task, request="is it happy or sad", selection_policy=SELECTION_POLICY_LLM)
        assert [(found.model_id, found.role) for found in answer.candidates] == [("mood", CANDIDATE_ROLE_PRIMARY)]
        assert "happy" in answer.candidates[0].reason
        assert (answer.decision.controller, bool(answer.decision.fell_back_because)) == (CONTROLLER_RANK, True)
        assert answer.spec.name == "text-classification"
        answer = await room.select(Task(task="text-classification"))
        roles = [found.role for found in answer.candidates]
        assert roles == [CANDIDATE_ROLE_PRIMARY, CANDIDATE_ROLE_FALLBACK]
        answer = await room.select(Task(task="text-classification", pinned_model="mood"))
        assert answer.decision.controller == CONTROLLER_PINNED


async def test_an_instruction_is_weighed_as_words_of_the_task(opened: Open) -> None:
    artist = card("artist", "image-to-image", "Paints in any style.")
    editor = card("editor", "image-to-image", "Turns pictures grey, blurs and sharpens them.")
    task = Task(task="image-to-image", arguments={"instruction": Argument(value=Value(text="make it grey"))})
    async with FakeExpert("vision", [artist, editor]).serving() as address, opened(experts=address) as room:
        assert (await room.select(task)).candidates[0].model_id == "editor"


async def test_who_says_nothing_of_policy_gets_nothing_external(opened: Open) -> None:
    outside = card("cloud", "text-classification", location=MODEL_LOCATION_EXTERNAL)
    async with FakeExpert("remote", [outside]).serving() as address, opened(experts=address) as room:
        task = Task(task="text-classification")
        for who in (None, Caller(tenant="default")):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await room.select(task, who)
            error = errors.from_rpc(refused.value)
            assert (error.code, error.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "POLICY")
        answer = await room.select(task, Caller(policy=DATA_POLICY_OPEN), inference_mode=INFERENCE_MODE_REMOTE)
        assert answer.candidates[0].location == MODEL_LOCATION_EXTERNAL


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
async def test_a_refusal_has_code_reason_and_remedy(
    opened: Open, task: Task, code: grpc.StatusCode, reason: str
) -> None:
    async with FakeExpert("lite", [MOOD]).serving() as address, opened(experts=address) as room:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await room.select(task)
        error = errors.from_rpc(refused.value)
        assert (error.code, error.reason, bool(error.remedy)) == (code, reason, True)


async def test_who_is_awake_or_unknown_cannot_be_forgotten(opened: Open) -> None:
    async with FakeExpert("lite", [MOOD]).serving() as address, opened(experts=address) as room:
        for name, reason in (("lite", "AWAKE"), ("nobody", "EXPERT")):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await room.stub.ForgetExpert(selector_pb2.ForgetExpertRequest(name=name), timeout=5)
            assert errors.from_rpc(refused.value).reason == reason


async def test_what_the_caller_knows_is_not_sent_again(opened: Open) -> None:
    lite = FakeExpert("lite", [MOOD])
    async with lite.serving() as address, opened(experts=address) as room:
        known = (await room.stub.ListTasks(gateway_pb2.ListTasksRequest(), timeout=5)).revision
        tasks = await room.stub.ListTasks(gateway_pb2.ListTasksRequest(known_revision=known), timeout=5)
        models = await room.stub.ListModels(gateway_pb2.ListModelsRequest(known_revision=known), timeout=5)
        assert (tasks.unchanged, len(tasks.tasks), tasks.revision) == (True, 0, known)
        assert (models.unchanged, len(models.models), models.revision) == (True, 0, known)

        async def changed() -> bool:
            return not (
                await room.stub.ListModels(gateway_pb2.ListModelsRequest(known_revision=known), timeout=5)
            ).unchanged

        lite.offer([card("mood", "text-classification", state=MODEL_STATE_LOADABLE)])
        await room.until(changed)
        assert (await room.stub.ListTasks(gateway_pb2.ListTasksRequest(known_revision=known), timeout=5)).unchanged


async def test_models_come_page_by_page(opened: Open) -> None:
    cards = [card(f"m{number}", "text-classification") for number in range(5)]
    async with FakeExpert("lite", [*cards, OCR]).serving() as address, opened(experts=address) as room:
        seen: list[str] = []
        token = known = ""
        while token or not seen:
            request = gateway_pb2.ListModelsRequest(
                task="text-classification", page_size=2, page_token=token, known_revision=known if token else ""
            )
            reply = await room.stub.ListModels(request, timeout=5)
            known = reply.revision
            assert 0 < len(reply.models) <= 2
            seen += [model.id for model in reply.models]
            token = reply.next_page_token
        assert seen == ["m0", "m1", "m2", "m3", "m4"]
        everything = await room.stub.ListModels(gateway_pb2.ListModelsRequest(), timeout=5)
        assert (everything.models[0].task, everything.models[0].expert) == ("image-to-text", "lite")
        assert (len(everything.models), everything.next_page_token) == (6, "")


async def test_tasks_are_listed_in_pages(opened: Open) -> None:
    cards = [OCR, card("mood", "text-classification"), card("short", "summarization")]
    async with FakeExpert("lite", cards).serving() as address, opened(experts=address) as room:
        first = await room.stub.ListTasks(gateway_pb2.ListTasksRequest(page_size=1), timeout=5)
        rest = gateway_pb2.ListTasksRequest(page_token=first.next_page_token, known_revision=first.revision)
        second = await room.stub.ListTasks(rest, timeout=5)
    assert [task.spec.name for task in first.tasks] == ["image-to-text"]
    assert [task.spec.name for task in second.tasks] == ["summarization", "text-classification"]
    assert not second.next_page_token


async def test_experts_are_listed_in_pages(opened: Open) -> None:
    a, b = FakeExpert("a", [OCR]), FakeExpert("b", [OCR])
    async with a.serving() as one, b.serving() as other, opened(experts=f"{one},{other}") as room:
        first = await room.stub.ListExperts(selector_pb2.ListExpertsRequest(page_size=1), timeout=5)
        rest = selector_pb2.ListExpertsRequest(page_token=first.next_page_token)
        second = await room.stub.ListExperts(rest, timeout=5)
    assert [expert.name for expert in first.experts] == ["a"]
    assert [expert.name for expert in second.experts] == ["b"]
    assert not second.next_page_token


@pytest.mark.parametrize("wrong", [{"page_token": "!"}, {"page_token": "e30="}, {"page_size": -1}])
async def test_a_page_that_cannot_be_is_refused(room: Room, wrong: dict[str, object]) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await room.stub.ListModels(gateway_pb2.ListModelsRequest(**wrong), timeout=5)  # type: ignore[arg-type]  # fields of the message
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_every_watcher_hears_of_every_change(room: Room) -> None:
    async with AsyncExitStack() as stack:
        watches = [room.stub.WatchCatalogue(selector_pb2.WatchCatalogueRequest(), timeout=20) for _ in range(20)]
        streams = [aiter(watch) for watch in watches]
        async with asyncio.timeout(10):
            first = {(await anext(stream)).revision for stream in streams}
            address = await stack.enter_async_context(FakeExpert("lite", [MOOD]).serving())
            room.add("lite", address)
            second = {(await anext(stream)).revision for stream in streams}
        assert (len(first), len(second), len(first | second)) == (1, 1, 2)
        for watch in watches:
            watch.cancel()


async def test_a_watch_ends_when_the_selector_stops(opened: Open) -> None:
    async with AsyncExitStack() as clients:
        async with asyncio.timeout(4), opened() as room:  # less than it may drain
            channel = await clients.enter_async_context(connect(room.address))
            stub = rpc.SelectorServiceStub(channel)
            stream = aiter(stub.WatchCatalogue(selector_pb2.WatchCatalogueRequest(), timeout=20))
            await anext(stream)
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await anext(stream)
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_addresses_without_an_expert_are_named(opened: Open) -> None:
    async with serving(lambda _: None, SERVICE) as other:
        mistaken, empty = f"127.0.0.1:{other.port}", "127.0.0.1:1"
        async with opened(experts=f"{mistaken},{empty}") as room:
            experts = await room.experts()
            assert f"{mistaken} answers, but is no expert" in experts[mistaken].problems[0]
            assert f"{empty} does not answer" in experts[empty].problems[0]


async def test_a_setting_that_names_no_address_stops_the_start(opened: Open) -> None:
    with pytest.raises(errors.InvalidRequest, match="nonsense is no host:port"):
        async with opened(experts="nonsense"):
            pass

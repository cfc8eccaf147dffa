import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any

import pytest

from experts.host import load_context as host_loading
from experts.host.active_calls import CallsUnderWay, Step
from experts.host.expert import Offer
from experts.host.handler import Handler, Loader, single
from experts.host.loaded_model import Loaded
from experts.host.model_slot import FAILURE_SECONDS, Model, State
from experts.host.models import Limits, Models
from protos.hugginggpt.v1.model_pb2 import ModelCard
from protos.hugginggpt.v1.task_pb2 import TaskSpec
from services.common.errors import FailedPrecondition


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Loading:
    """A loader that counts, waits to be let through, and fails as often as told."""

    def __init__(self, *, failures: int = 0, error: BaseException | None = None) -> None:
        self.times = 0
        self.started, self.release = threading.Event(), threading.Event()
        self._failures, self._error = failures, error or ImportError("no such engine")

    def __call__(self, model_id: str, device: str) -> Handler:
        self.times += 1
        self.started.set()
        self.release.wait(5)
        if self.times <= self._failures:
            raise self._error
        return single(lambda inputs, parameters: inputs)


def offer(task: str, model_id: str, loader: Loader, **card: Any) -> Offer:
    return Offer(TaskSpec(name=task), ModelCard(id=model_id, task=task, **card), loader)


@contextmanager
def models(*loaders: tuple[str, str, Loader], clock: Callable[[], float] | None = None) -> Iterator[Models]:
    with closing(Models([offer(*each) for each in loaders], Limits(), clock=clock or Clock())) as opened:
        yield opened


async def use(model: Model) -> Loaded:
    async with model.used() as loaded:
        return loaded


async def test_a_model_is_loaded_once_however_many_ask_at_once() -> None:
    loading = Loading()
    with models(("task", "m", loading)) as all_models:
        model = all_models.get("task", "m")
        asking = [asyncio.create_task(use(model)) for _ in range(5)]
        await asyncio.to_thread(loading.started.wait, 5)
        assert (model.state, all_models.loaded) == (State.LOADABLE, frozenset())
        loading.release.set()
        handlers = await asyncio.gather(*asking)
        assert len({id(handler) for handler in [*handlers, await use(model)]}) == 1
        assert (loading.times, model.state, all_models.loaded) == (1, State.READY, frozenset({"m"}))


async def test_who_stops_waiting_does_not_stop_the_load() -> None:
    loading = Loading()
    with models(("task", "m", loading)) as all_models:
        model = all_models.get("task", "m")
        impatient, patient = asyncio.create_task(use(model)), asyncio.create_task(use(model))
        await asyncio.to_thread(loading.started.wait, 5)
        impatient.cancel()
        await asyncio.wait([impatient])
        assert impatient.cancelled()
        loading.release.set()
        assert await patient
        assert loading.times == 1


@pytest.mark.parametrize(
    ("error", "message", "remedy"),
    [
        (ImportError("secret path"), "ImportError", "log"),
        (FailedPrecondition("the weights are gated", remedy="set HF_TOKEN"), "the weights are gated", "set HF_TOKEN"),
        (SystemExit(1), "RuntimeError", "log"),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_a_failed_load_is_reported_and_not_repeated_at_once(
    error: BaseException, message: str, remedy: str
) -> None:
    clock, loading = Clock(), Loading(failures=1, error=error)
    loading.release.set()
    with models(("task", "m", loading), clock=clock) as all_models:
        model = all_models.get("task", "m")
        for waited in (0, 10):
            clock.now = waited
            with pytest.raises(FailedPrecondition, match=message) as caught:
                await use(model)
            assert caught.value.reason == "LOAD_FAILED"
            assert caught.value.retry_after == timedelta(seconds=FAILURE_SECONDS - waited)
            assert remedy in caught.value.remedy
            assert "secret" not in caught.value.message
        assert (loading.times, model.state) == (1, State.FAILED)
        clock.now = FAILURE_SECONDS
        assert (model.state, model.failure) == (State.LOADABLE, None)
        await use(model)
        assert (loading.times, model.state) == (2, State.READY)


async def test_models_take_turns_to_load() -> None:
    first, second = Loading(), Loading()
    with models(("task", "a", first), ("task", "b", second)) as all_models:
        asking = [asyncio.create_task(use(all_models.get("task", name))) for name in "ab"]
        await asyncio.to_thread(first.started.wait, 5)
        second.release.set()
        assert not await asyncio.to_thread(second.started.wait, 0.1)
        first.release.set()
        await asyncio.gather(*asking)
        assert second.times == 1


async def test_one_model_for_two_tasks_lives_on_one_thread() -> None:
    def thread(model_id: str, device: str) -> Handler:
        idents.append(threading.get_ident())
        return single(lambda inputs, parameters: inputs)

    idents: list[int] = []
    with models(("one", "m", thread), ("two", "m", thread), ("one", "other", thread)) as all_models:
        await all_models.load(["m", "other"])
    assert (idents[0] == idents[1], idents[0] == idents[2]) == (True, False)


async def test_an_id_counts_as_loaded_once_it_is_for_every_task() -> None:
    loading = Loading()
    loading.release.set()
    with models(("one", "m", loading), ("two", "m", loading)) as all_models:
        await use(all_models.get("one", "m"))
        assert all_models.loaded == frozenset()
        await use(all_models.get("two", "m"))
        assert all_models.loaded == {"m"}


async def test_preloading_succeeds_if_any_model_does() -> None:
    broken, working = Loading(failures=1), Loading()
    broken.release.set()
    working.release.set()
    with models(("task", "broken", broken), ("task", "working", working)) as all_models:
        assert not await all_models.load(["broken"])
        assert await all_models.load(["broken", "working"])
        assert await all_models.load([])
        assert all_models.changed.is_set()


async def test_a_loader_learns_what_it_may_want_to_know_and_tells_how_far_it_is() -> None:
    started, release = threading.Event(), threading.Event()
    told: list[host_loading.Loading] = []

    def loader(model_id: str, device: str) -> Handler:
        told.append(host_loading.current())
        told[0].progress(0.5, "downloading")
        started.set()
        release.wait(5)
        return single(lambda inputs, parameters: inputs)

    offers = [offer("task", "m", loader, revision="abc")]
    with closing(Models(offers, Limits(), places="m=cpu:bf16")) as all_models:
        model = all_models.get("task", "m")
        with CallsUnderWay().entered("default", "") as call:
            using = asyncio.create_task(_used(model, call))
            await asyncio.to_thread(started.wait, 5)
            assert model.loading == call.step == Step(0.5, "downloading")
            release.set()
            await using
        assert model.loading is None
    first = told[0]
    assert (first.revision, first.task, first.model_id, first.device) == ("abc", "task", "m", "cpu")
    assert first.dtype == "bfloat16"
    assert host_loading.current().revision == ""


async def _used(model: Model, call: Any) -> None:
    async with model.used(call):
        pass


class Committed:
    """A handler that knows its commit."""

    revision = "c0ffee"

    prepare = cost = run = finish = None


@pytest.mark.parametrize(("card", "revision"), [("", "c0ffee"), ("v1", "v1")])
async def test_a_model_says_which_commit_was_loaded_where_its_card_does_not(card: str, revision: str) -> None:
    def loader(model_id: str, device: str) -> Any:
        return Committed()

    with closing(Models([offer("task", "m", loader, revision=card)], Limits())) as all_models:
        model = all_models.get("task", "m")
        model.check("")
        await use(model)
        model.check(revision)
        with pytest.raises(FailedPrecondition, match="not other") as caught:
            model.check("other")
        assert (model.revision, caught.value.reason) == (revision, "REVISION")


async def test_a_device_that_is_not_there_is_named() -> None:
    loading = Loading()
    with closing(Models([offer("task", "m", loading)], Limits(), places="*=cuda")) as all_models:
        with pytest.raises(FailedPrecondition, match="there is no device cuda") as caught:
            await use(all_models.get("task", "m"))
        assert "EXPERT_DEVICES" in caught.value.remedy
        assert loading.times == 0

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any

import pytest

from experts.host import load_context
from experts.host.active_calls import ActiveCalls, ProgressUpdate
from experts.host.expert import Offer
from experts.host.handler import Handler, Loader, Single, single
from experts.host.loaded_model import LoadedModel
from experts.host.model_manager import FAILURE_SECONDS, Limits, ModelManager, ModelSlot, State
from protos.hugginggpt.v1.model_pb2 import ModelCard
from protos.hugginggpt.v1.task_pb2 import TaskSpec
from services.common.errors import FailedPrecondition


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class ScriptedLoader:
    """Loader that counts its calls, blocks until released, and fails a given number of times."""

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
def models(*loaders: tuple[str, str, Loader], clock: Callable[[], float] | None = None) -> Iterator[ModelManager]:
    with closing(ModelManager([offer(*each) for each in loaders], Limits(), clock=clock or Clock())) as opened:
        yield opened


async def use(model: ModelSlot) -> LoadedModel:
    async with model.use() as loaded:
        return loaded


async def test_concurrent_uses_share_one_load() -> None:
    loading = ScriptedLoader()
    with models(("task", "m", loading)) as all_models:
        model = all_models.get("task", "m")
        tasks = [asyncio.create_task(use(model)) for _ in range(5)]
        await asyncio.to_thread(loading.started.wait, 5)
        assert State(model.state) is State.LOADABLE
        assert all_models.loaded == frozenset()
        loading.release.set()
        handlers = await asyncio.gather(*tasks)
        assert len({id(handler) for handler in [*handlers, await use(model)]}) == 1
        assert loading.times == 1
        assert State(model.state) is State.READY
        assert all_models.loaded == {"m"}


async def test_load_continues_when_one_waiter_is_cancelled() -> None:
    loading = ScriptedLoader()
    with models(("task", "m", loading)) as all_models:
        model = all_models.get("task", "m")
        cancelled, waiting = asyncio.create_task(use(model)), asyncio.create_task(use(model))
        await asyncio.to_thread(loading.started.wait, 5)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        assert cancelled.cancelled()
        loading.release.set()
        assert await waiting
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
async def test_failed_load_is_reported_and_retried_after_a_delay(
    error: BaseException, message: str, remedy: str
) -> None:
    clock, loading = Clock(), ScriptedLoader(failures=1, error=error)
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
        assert loading.times == 1
        assert State(model.state) is State.FAILED
        clock.now = FAILURE_SECONDS
        assert State(model.state) is State.LOADABLE
        assert model.failure is None
        await use(model)
        assert loading.times == 2
        assert State(model.state) is State.READY


async def test_models_load_one_after_the_other() -> None:
    first, second = ScriptedLoader(), ScriptedLoader()
    with models(("task", "a", first), ("task", "b", second)) as all_models:
        tasks = [asyncio.create_task(use(all_models.get("task", name))) for name in "ab"]
        await asyncio.to_thread(first.started.wait, 5)
        second.release.set()
        assert not await asyncio.to_thread(second.started.wait, 0.1)
        first.release.set()
        await asyncio.gather(*tasks)
        assert second.times == 1


async def test_model_with_two_tasks_loads_on_one_thread() -> None:
    def thread(model_id: str, device: str) -> Handler:
        idents.append(threading.get_ident())
        return single(lambda inputs, parameters: inputs)

    idents: list[int] = []
    with models(("one", "m", thread), ("two", "m", thread), ("one", "other", thread)) as all_models:
        await all_models.preload(["m", "other"])
    assert idents[0] == idents[1]
    assert idents[0] != idents[2]


async def test_model_counts_as_loaded_when_all_its_tasks_are() -> None:
    loading = ScriptedLoader()
    loading.release.set()
    with models(("one", "m", loading), ("two", "m", loading)) as all_models:
        await use(all_models.get("one", "m"))
        assert all_models.loaded == frozenset()
        await use(all_models.get("two", "m"))
        assert all_models.loaded == {"m"}


async def test_preload_succeeds_if_any_model_loads() -> None:
    broken, working = ScriptedLoader(failures=1), ScriptedLoader()
    broken.release.set()
    working.release.set()
    with models(("task", "broken", broken), ("task", "working", working)) as all_models:
        assert not await all_models.preload(["broken"])
        assert await all_models.preload(["broken", "working"])
        assert await all_models.preload([])
        assert all_models.changed.is_set()


async def test_loader_sees_its_context_and_reports_progress() -> None:
    started, release = threading.Event(), threading.Event()
    contexts: list[load_context.LoadContext] = []

    def loader(model_id: str, device: str) -> Handler:
        contexts.append(load_context.current())
        contexts[0].progress(0.5, "downloading")
        started.set()
        release.wait(5)
        return single(lambda inputs, parameters: inputs)

    offers = [offer("task", "m", loader, revision="abc")]
    with closing(ModelManager(offers, Limits(), placements="m=cpu:bf16")) as all_models:
        model = all_models.get("task", "m")
        with ActiveCalls().track("default", "") as call:
            using = asyncio.create_task(_used(model, call))
            await asyncio.to_thread(started.wait, 5)
            assert model.load_progress == call.latest_progress == ProgressUpdate(0.5, "downloading")
            release.set()
            await using
        assert model.load_progress is None
    first = contexts[0]
    assert first.revision == "abc"
    assert first.task == "task"
    assert first.model_id == "m"
    assert first.device == "cpu"
    assert first.compute.dtype == "bfloat16"
    assert load_context.current().revision == ""


async def _used(model: ModelSlot, call: Any) -> None:
    async with model.use(call):
        pass


class Committed(Single):
    """A handler that reports its commit."""

    revision = "c0ffee"


@pytest.mark.parametrize(("card", "revision"), [("", "c0ffee"), ("v1", "v1")])
async def test_revision_is_the_loaded_commit_unless_the_card_states_one(card: str, revision: str) -> None:
    def loader(model_id: str, device: str) -> Any:
        return Committed(lambda inputs, parameters: inputs)

    with closing(ModelManager([offer("task", "m", loader, revision=card)], Limits())) as all_models:
        model = all_models.get("task", "m")
        model.check_revision("")
        await use(model)
        model.check_revision(revision)
        with pytest.raises(FailedPrecondition, match="not other") as caught:
            model.check_revision("other")
        assert model.revision == revision
        assert caught.value.reason == "REVISION"


async def test_missing_device_is_named_in_the_error() -> None:
    loading = ScriptedLoader()
    with closing(ModelManager([offer("task", "m", loading)], Limits(), placements="*=cuda")) as all_models:
        with pytest.raises(FailedPrecondition, match="there is no device cuda") as caught:
            await use(all_models.get("task", "m"))
        assert "EXPERT_DEVICES" in caught.value.remedy
        assert loading.times == 0

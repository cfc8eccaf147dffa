import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta

import pytest

from experts.host.handler import Handler, Loader, single
from experts.host.models import FAILURE_SECONDS, Models, State
from services.runtime.errors import FailedPrecondition


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


@contextmanager
def models(*loaders: tuple[str, str, Loader], clock: Callable[[], float] | None = None) -> Iterator[Models]:
    with closing(Models(loaders, max_waiting=2, clock=clock or Clock())) as opened:
        yield opened


async def test_a_model_is_loaded_once_however_many_ask_at_once() -> None:
    loading = Loading()
    with models(("task", "m", loading)) as all_models:
        model = all_models.get("task", "m")
        asking = [asyncio.create_task(model.handler()) for _ in range(5)]
        await asyncio.to_thread(loading.started.wait, 5)
        assert (model.state, all_models.loaded) == (State.LOADABLE, frozenset())
        loading.release.set()
        handlers = await asyncio.gather(*asking)
        assert len({id(handler) for handler in [*handlers, await model.handler()]}) == 1
        assert (loading.times, model.state, all_models.loaded) == (1, State.READY, frozenset({"m"}))


async def test_who_stops_waiting_does_not_stop_the_load() -> None:
    loading = Loading()
    with models(("task", "m", loading)) as all_models:
        model = all_models.get("task", "m")
        impatient, patient = asyncio.create_task(model.handler()), asyncio.create_task(model.handler())
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
                await model.handler()
            assert caught.value.reason == "LOAD_FAILED"
            assert caught.value.retry_after == timedelta(seconds=FAILURE_SECONDS - waited)
            assert remedy in caught.value.remedy
            assert "secret" not in caught.value.message
        assert (loading.times, model.state) == (1, State.FAILED)
        clock.now = FAILURE_SECONDS
        assert (model.state, model.failure) == (State.LOADABLE, None)
        await model.handler()
        assert (loading.times, model.state) == (2, State.READY)


async def test_models_take_turns_to_load() -> None:
    first, second = Loading(), Loading()
    with models(("task", "a", first), ("task", "b", second)) as all_models:
        asking = [asyncio.create_task(all_models.get("task", name).handler()) for name in "ab"]
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
        await all_models.get("one", "m").handler()
        assert all_models.loaded == frozenset()
        await all_models.get("two", "m").handler()
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

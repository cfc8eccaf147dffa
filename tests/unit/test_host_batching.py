import asyncio
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from experts.host.batching import LONGEST_WAIT, SHORTEST_WAIT, Queue
from experts.host.handler import Call, Handler
from experts.host.progress import CallsUnderWay
from services.runtime.errors import ModelFailed, Overloaded


@pytest.fixture
def queue() -> Iterator[Queue]:
    queue = Queue("m", limit=2)
    yield queue
    queue.thread.close()


@pytest.mark.parametrize(("typical", "wait"), [(3.0, 6.0), (0.0, SHORTEST_WAIT), (1000.0, LONGEST_WAIT)])
def test_a_full_queue_refuses_with_a_time_to_come_back(queue: Queue, typical: float, wait: float) -> None:
    with queue.place(typical), queue.place(typical):
        assert (queue.waiting, queue.running, queue.quiet) == (2, 0, False)
        with pytest.raises(Overloaded) as caught, queue.place(typical):
            pass
        assert caught.value.retry_after == timedelta(seconds=wait)
    with queue.place(typical):
        assert (queue.waiting, queue.quiet) == (1, True)


class Miscounting:
    """A model that gives as many results as told, whatever it is given."""

    def __init__(self, results: int) -> None:
        self.ran = False
        self._results = results

    def prepare(self, inputs: Any, parameters: Any) -> Any: ...

    def cost(self, item: Any) -> float:
        return 1

    def run(self, items: Sequence[Any], call: Call) -> Sequence[Any]:
        self.ran = True
        return ["result"] * self._results

    def finish(self, raw: Any) -> Any: ...


@pytest.mark.parametrize("results", [0, 2])
async def test_a_model_gives_as_many_results_as_it_was_given_items(queue: Queue, results: int) -> None:
    handler: Handler = Miscounting(results)
    with CallsUnderWay().entered("default", "") as call, pytest.raises(ModelFailed, match=f"{results} results"):
        queue.run_here(handler, "item", call)
    assert queue.running == 0


async def test_a_call_whose_caller_has_gone_is_not_run(queue: Queue) -> None:
    handler = Miscounting(1)
    with CallsUnderWay().entered("default", "") as call:
        assert queue.run_here(handler, "item", call) == "result"
        handler.ran = False
    with pytest.raises(asyncio.CancelledError):
        queue.run_here(handler, "item", call)
    assert not handler.ran

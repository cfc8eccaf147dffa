"""Ray Serve with the benchmark's model: python -m tests.bench.peers.with_ray PORT."""

import sys
import threading
from collections.abc import Sequence
from typing import Any

import ray
from ray import serve

from tests.bench.dense.tasks import ITEMS, Dense
from tests.bench.offline_call import OfflineCall
from tests.bench.peers.batching import WAIT_SECONDS


@serve.deployment(max_ongoing_requests=256, ray_actor_options={"num_cpus": 0})
class Api:
    def __init__(self) -> None:
        self.model = Dense()

    @serve.batch(max_batch_size=ITEMS, batch_wait_timeout_s=WAIT_SECONDS)  # type: ignore[untyped-decorator]
    async def run(self, batch: Sequence[str]) -> Sequence[str]:
        return self.model.run(list(batch), OfflineCall())

    async def __call__(self, request: Any) -> dict[str, str]:
        return {"text": await self.run((await request.json())["text"])}


if __name__ == "__main__":
    ray.init(include_dashboard=False, object_store_memory=100_000_000, log_to_driver=False, configure_logging=False)
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
    serve.run(Api.bind(), route_prefix="/predict")  # type: ignore[attr-defined]  # added by the decorator
    threading.Event().wait()

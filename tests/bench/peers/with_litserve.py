"""LitServe with the benchmark's model: python -m tests.bench.peers.with_litserve PORT."""

import sys
from collections.abc import Sequence

import litserve
import litserve.server

from tests.bench.dense.tasks import ITEMS, Dense
from tests.bench.offline_call import OfflineCall
from tests.bench.peers.batching import WAIT_SECONDS


class Api(litserve.LitAPI):  # type: ignore[misc]  # litserve has no type hints
    def setup(self, device: str) -> None:
        self.model = Dense()

    def decode_request(self, request) -> str:  # type: ignore[no-untyped-def]  # noqa: ANN001  # litserve reads annotations as a schema
        return str(request["text"])

    def predict(self, batch: Sequence[str]) -> Sequence[str]:
        return self.model.run(list(batch), OfflineCall())

    def encode_response(self, output: str) -> dict[str, str]:
        return {"text": output}


litserve.server._MCP_AVAILABLE = False  # the installed mcp is newer than the version that litserve supports

if __name__ == "__main__":
    api = Api(max_batch_size=ITEMS, batch_timeout=WAIT_SECONDS)
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1, timeout=120)
    server.run(host="127.0.0.1", port=int(sys.argv[1]), generate_client_file=False, log_level="error")

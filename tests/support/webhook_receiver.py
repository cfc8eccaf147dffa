"""A webhook receiver that verifies signatures with an independent library."""

from typing import Any

from standardwebhooks import Webhook

from protos.hugginggpt.internal.v1.orchestrator_pb2 import EndedBatch, EndedRun
from protos.hugginggpt.v1.batch_pb2 import BatchCounts
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_OPEN, PRIORITY_INTERACTIVE, Caller
from protos.hugginggpt.v1.pipeline_pb2 import PipelineRef
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_COMPLETED, RUN_STATE_INCOMPLETE
from protos.hugginggpt.v1.usage_pb2 import Usage
from tests.fakes.llm.http import Request
from tests.fakes.web import Web

PATH = "/hooks"


def verified_content(request: Request, secret: str) -> Any:
    """Verifies a request's signature and returns its content."""
    return Webhook(secret).verify(request.body, dict(request.headers))


def allowed_hosts(*servers: Web) -> list[str]:
    """Allowed webhook hosts, as an operator configures them."""
    return [web.url.removeprefix("http://") for web in servers]


def ended_run(run_id: str, at: float, **caller: Any) -> EndedRun:
    """A finished run of tenant a with the policy open, unless another caller is given."""
    usage = Usage(input_tokens=7)
    run = EndedRun(run_id=run_id, caller=_caller(caller), state=RUN_STATE_COMPLETED, usage=usage)
    run.end_time.FromMicroseconds(int(at * 1e6))
    return run


def ended_batch(batch_id: str, at: float, round_: int = 1, **caller: Any) -> EndedBatch:
    """A finished batch of a pipeline with one failed item; caller as for runs."""
    batch = EndedBatch(
        batch_id=batch_id,
        round=round_,
        caller=_caller(caller),
        state=RUN_STATE_INCOMPLETE,
        pipeline=PipelineRef(name="read-aloud", version=2),
        counts=BatchCounts(total=20, completed=19, failed=1),
    )
    batch.create_time.FromMicroseconds(int((at - 60) * 1e6))
    batch.end_time.FromMicroseconds(int(at * 1e6))
    return batch


def _caller(given: dict[str, Any]) -> Caller:
    return Caller(**{"tenant": "a", "policy": DATA_POLICY_OPEN, "priority": PRIORITY_INTERACTIVE, **given})

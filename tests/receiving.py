"""A server that is told by webhooks, and checks what it is told with a library that is not ours."""

from typing import Any

from standardwebhooks import Webhook

from protos.hugginggpt.v1.orchestrator_pb2 import EndedRun
from protos.hugginggpt.v1.types_pb2 import (
    DATA_POLICY_OPEN,
    PRIORITY_INTERACTIVE,
    RUN_STATE_COMPLETED,
    Caller,
    Usage,
)
from tests.fakes.llm.wire import Request
from tests.fakes.web import Web

PATH = "/hooks"


def told(request: Request, secret: str) -> Any:
    """What a request says, its signature checked."""
    return Webhook(secret).verify(request.body, dict(request.headers))


def allowed(*servers: Web) -> list[str]:
    """The servers, as an operator names them."""
    return [web.url.removeprefix("http://") for web in servers]


def ended_run(run_id: str, at: float, **caller: Any) -> EndedRun:
    """A run that has ended; of tenant a, who lets data out, unless the caller is another."""
    who = {"tenant": "a", "policy": DATA_POLICY_OPEN, "priority": PRIORITY_INTERACTIVE, **caller}
    usage = Usage(input_tokens=7)
    run = EndedRun(run_id=run_id, caller=Caller(**who), state=RUN_STATE_COMPLETED, usage=usage)
    run.ended.FromMicroseconds(int(at * 1e6))
    return run

"""OpenAI's client library connected to a gateway with a scripted orchestrator."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI, OpenAI

from protos.hugginggpt.v1 import gateway_pb2
from protos.hugginggpt.v1.artifact_pb2 import Artifact, Value
from protos.hugginggpt.v1.event_pb2 import AnswerChunk, RunEnded, RunEvent, TaskEnded, TaskPlanned, TaskStarted
from protos.hugginggpt.v1.model_pb2 import Candidate
from protos.hugginggpt.v1.run_pb2 import RUN_STATE_CANCELLED, RUN_STATE_COMPLETED, TASK_STATE_SUCCEEDED, TaskResult
from protos.hugginggpt.v1.task_pb2 import Argument, Task
from protos.hugginggpt.v1.usage_pb2 import Usage
from tests.fakes import ScriptedOrchestrator, ScriptedRun, ScriptedSelector
from tests.support.gateway import GatewayUnderTest, start_gateway


class CancellableOrchestrator(ScriptedOrchestrator):
    """An orchestrator whose runs end when cancelled."""

    def __init__(self, script: Sequence[RunEvent], breaks: Iterable[int] = ()) -> None:
        super().__init__(script, breaks=breaks)
        self.cancel_received = asyncio.Event()

    async def CancelRun(self, request: gateway_pb2.CancelRunRequest, context: Any) -> gateway_pb2.CancelRunResponse:
        reply = await super().CancelRun(request, context)
        run = self.runs[request.run_id]
        if not run.ended:
            run.send(RunEvent(run_ended=RunEnded(state=RUN_STATE_CANCELLED)))
        self.cancel_received.set()
        return reply


@dataclass(frozen=True)
class OpenAIGateway:
    """A gateway and clients connected to it."""

    gateway: GatewayUnderTest
    client: AsyncOpenAI
    sync: OpenAI
    orchestrator: CancellableOrchestrator

    def last(self) -> ScriptedRun:
        """The last accepted run."""
        return list(self.orchestrator.runs.values())[-1]


@asynccontextmanager
async def start_openai_gateway(
    folder: Path,
    script: Sequence[RunEvent],
    *,
    breaks: Iterable[int] = (),
    selector: ScriptedSelector | None = None,
    settings: Mapping[str, Any] | None = None,
) -> AsyncIterator[OpenAIGateway]:
    """Starts the gateway and its clients; every run has the scripted events."""
    orchestrator = CancellableOrchestrator(script, breaks)
    async with start_gateway(folder, orchestrator, selector, settings) as gateway:
        given: Any = {"base_url": f"http://127.0.0.1:{gateway.http_port}/v1", "api_key": "none", "max_retries": 0}
        async with AsyncOpenAI(timeout=15, **given) as client:
            with OpenAI(timeout=15, **given) as sync:
                yield OpenAIGateway(gateway, client, sync, orchestrator)


def task_planned(number: int, kind: str, **arguments: Argument) -> RunEvent:
    """Event of a planned task."""
    return RunEvent(task_id=number, task_planned=TaskPlanned(task=Task(id=number, task=kind, arguments=arguments)))


def task_started(number: int, model: str = "a/b") -> RunEvent:
    return RunEvent(task_id=number, task_started=TaskStarted(by=Candidate(model_id=model)))


def task_succeeded(number: int, **outputs: Value) -> RunEvent:
    """Event of a successful task with its outputs."""
    result = TaskResult(task_id=number, attempt=1, outputs=outputs)
    return RunEvent(task_id=number, task_ended=TaskEnded(state=TASK_STATE_SUCCEEDED, result=result))


def answer_chunk(text: str) -> RunEvent:
    return RunEvent(answer_chunk=AnswerChunk(text=text))


def run_ended(**fields: Any) -> RunEvent:
    """Event of the run's end; completed unless the fields override it."""
    given: dict[str, Any] = {"state": RUN_STATE_COMPLETED, "usage": Usage(input_tokens=7, output_tokens=5)} | fields
    return RunEvent(run_ended=RunEnded(**given))


PICTURE = Artifact(sha256="a" * 64, media_type="image/png", size_bytes=3, name="boxes [1].png")
SOUND = Artifact(sha256="b" * 64, media_type="audio/wav", size_bytes=3, name="speech.wav")

LABELS = Value(json='[{"label":"POSITIVE","score":0.98},{"label":"NEGATIVE","score":0.02}]')

EVENTS = (
    task_planned(1, "text-classification"),
    task_started(1),
    task_succeeded(1, labels=LABELS, text=Value(text="POSITIVE (98 %)")),
    task_planned(2, "text-to-speech"),
    task_started(2, "espeak"),
    task_succeeded(2, audio=Value(artifact=SOUND), image=Value(artifact=PICTURE)),
    answer_chunk("It is "),
    answer_chunk("good news."),
    run_ended(),
)
"""Events of a run with two tasks and an answer in two chunks."""

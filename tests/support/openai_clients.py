"""OpenAI's own clients before a real gateway, with a scripted orchestrator behind it."""

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
from tests.fakes import ScriptedOrchestrator, ScriptedRun
from tests.support.gateway import Doors, opened_doors


class ObedientOrchestrator(ScriptedOrchestrator):
    """Its runs end when they are told to."""

    def __init__(self, script: Sequence[RunEvent], breaks: Iterable[int] = ()) -> None:
        super().__init__(script, breaks=breaks)
        self.told_to_stop = asyncio.Event()

    async def CancelRun(self, request: gateway_pb2.CancelRunRequest, context: Any) -> gateway_pb2.CancelRunResponse:
        reply = await super().CancelRun(request, context)
        run = self.runs[request.run_id]
        if not run.ended:
            run.tell(RunEvent(run_ended=RunEnded(state=RUN_STATE_CANCELLED)))
        self.told_to_stop.set()
        return reply


@dataclass(frozen=True)
class Opened:
    """A gateway and its clients."""

    doors: Doors
    client: AsyncOpenAI
    sync: OpenAI
    orchestrator: ObedientOrchestrator

    def last(self) -> ScriptedRun:
        """The run accepted last."""
        return list(self.orchestrator.runs.values())[-1]


@asynccontextmanager
async def opened(
    folder: Path, script: Sequence[RunEvent], *, breaks: Iterable[int] = (), settings: Mapping[str, Any] | None = None
) -> AsyncIterator[Opened]:
    """Opens all of it; every run goes as the script says."""
    orchestrator = ObedientOrchestrator(script, breaks)
    async with opened_doors(folder, orchestrator, settings=settings) as doors:
        given: Any = {"base_url": f"http://127.0.0.1:{doors.http_port}/v1", "api_key": "none", "max_retries": 0}
        async with AsyncOpenAI(timeout=15, **given) as client:
            with OpenAI(timeout=15, **given) as sync:
                yield Opened(doors, client, sync, orchestrator)


def task(number: int, kind: str, **arguments: Argument) -> RunEvent:
    """It is planned."""
    return RunEvent(task_id=number, task_planned=TaskPlanned(task=Task(id=number, task=kind, arguments=arguments)))


def begun(number: int, model: str = "a/b") -> RunEvent:
    return RunEvent(task_id=number, task_started=TaskStarted(by=Candidate(model_id=model)))


def done(number: int, **outputs: Value) -> RunEvent:
    """It gave these."""
    result = TaskResult(task_id=number, attempt=1, outputs=outputs)
    return RunEvent(task_id=number, task_ended=TaskEnded(state=TASK_STATE_SUCCEEDED, result=result))


def said(text: str) -> RunEvent:
    return RunEvent(answer_chunk=AnswerChunk(text=text))


def over(**fields: Any) -> RunEvent:
    """The run's end, a good one unless the fields say otherwise."""
    given: dict[str, Any] = {"state": RUN_STATE_COMPLETED, "usage": Usage(input_tokens=7, output_tokens=5)} | fields
    return RunEvent(run_ended=RunEnded(**given))


PICTURE = Artifact(sha256="a" * 64, media_type="image/png", size_bytes=3, name="boxes [1].png")
SOUND = Artifact(sha256="b" * 64, media_type="audio/wav", size_bytes=3, name="speech.wav")

LABELS = Value(json='[{"label":"POSITIVE","score":0.98},{"label":"NEGATIVE","score":0.02}]')

WORK = (
    task(1, "text-classification"),
    begun(1),
    done(1, labels=LABELS, text=Value(text="POSITIVE (98 %)")),
    task(2, "text-to-speech"),
    begun(2, "espeak"),
    done(2, audio=Value(artifact=SOUND), image=Value(artifact=PICTURE)),
    said("It is "),
    said("good news."),
    over(),
)
"""A run with two tasks and an answer in two pieces."""

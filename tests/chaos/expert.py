"""Expert with one function, which injects the faults of the campaign's script: python -m tests.chaos.expert.

Faults already injected are recorded in a folder that all experts share, so that restarts of experts or orchestrators do
not cause more faults of a task than its script contains.
"""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from pydantic_settings import SettingsConfigDict

from protos.hugginggpt.v1 import expert_pb2 as pb
from protos.hugginggpt.v1 import expert_pb2_grpc as rpc
from protos.hugginggpt.v1.artifact_pb2 import Artifact, Value
from services.common.errors import ModelFailed, Overloaded, Unavailable
from services.common.server import RunningServer, run, serving
from services.common.settings import ServiceSettings
from tests.chaos.cases import digest
from tests.fakes.infer_only import InferOnlyExpert

SLOW_SECONDS = 0.5
CALL_SECONDS = 0.15
"""Longest call without a fault."""


class Settings(ServiceSettings):
    """Settings of the expert; environment variables start with CHAOS_."""

    model_config = SettingsConfigDict(env_prefix="CHAOS_")

    ledger: Path
    """Folder that all experts share."""


class Ledger:
    """Record of injected faults and received calls, in a shared folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._calls = os.open(folder / "calls", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def record_call(self, key: str, seed: int) -> None:
        line = f"{time.time()} {key} {seed}\n".encode()
        os.write(self._calls, line)  # one write, so that lines of several processes do not mix

    def next_fault(self, key: str, faults: Sequence[str]) -> str | None:
        """The task's first fault that was not injected yet; None if all were."""
        for number, fault in enumerate(faults):
            try:
                os.close(os.open(self._folder / f"{key}.{number}.{fault}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            return fault
        return None


class ChaosExpert(InferOnlyExpert):
    """Hashes texts, with faults."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def Infer(self, request: pb.InferRequest, context: Any) -> pb.InferResponse:
        parameters = json.loads(request.parameters_json)
        fault = None
        if key := parameters.get("key"):
            self._ledger.record_call(key, parameters.get("seed", 0))
            fault = self._ledger.next_fault(key, parameters["faults"])
        await asyncio.sleep(CALL_SECONDS * Random(request.parameters_json).random())
        text = digest(parameters["salt"], [value.text for value in request.lists["text"].values])
        outputs = {"text": Value(text=text), "length": Value(json=str(len(text)))}
        return pb.InferResponse(outputs=await apply_fault(fault, outputs), revision=request.revision)

    async def Progress(self, request: pb.ProgressRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        """Reports nothing: calls have no intermediate progress."""


async def apply_fault(fault: str | None, outputs: Mapping[str, Value]) -> Mapping[str, Value]:
    """Applies a fault to the outputs of a call.

    Raises:
        ServiceError: the fault is an error.
    """
    match fault:
        case "unavailable":
            raise Unavailable("scripted fault: expert unavailable")
        case "overloaded":
            raise Overloaded("scripted fault: expert overloaded", retry_after=timedelta(seconds=0.2))
        case "broken":
            raise ModelFailed("scripted fault: model failed")
        case "hang":
            await asyncio.Event().wait()
        case "slow":
            await asyncio.sleep(SLOW_SECONDS)
        case "missing port":
            return {"length": outputs["length"]}
        case "unknown port":
            return {**outputs, "colour": Value(text="blue")}
        case "wrong kind":
            return {**outputs, "length": Value(artifact=Artifact(sha256="0" * 64)), "text": Value(json="1")}
    return outputs


@asynccontextmanager
async def expert(settings: Settings) -> AsyncIterator[RunningServer]:
    """Serves the expert."""
    servicer = ChaosExpert(Ledger(settings.ledger))  # type: ignore[abstract]  # Describe is not called
    register = partial(rpc.add_ExpertServiceServicer_to_server, servicer)
    service = pb.DESCRIPTOR.services_by_name["ExpertService"]
    async with serving(register, service, listen=settings.listen) as running:
        yield running


if __name__ == "__main__":
    run("chaos-expert", expert, Settings)

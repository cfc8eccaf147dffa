"""An expert that knows one function and does what the campaign's script says: python -m tests.chaos.expert.

Which faults have been dealt out already stands in a folder that all experts share, so that neither their deaths nor
those of orchestrators bring a task more of them than its script has.
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
from tests.chaos.cases import woven

SLOW_SECONDS = 0.5
CALL_SECONDS = 0.15
"""Longest call of a task to which nothing happens."""


class Settings(ServiceSettings):
    """Environment variables start with CHAOS_."""

    model_config = SettingsConfigDict(env_prefix="CHAOS_")

    ledger: Path
    """The folder that all experts share."""


class Ledger:
    """What has been dealt out, and which calls have come."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._calls = os.open(folder / "calls", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def called(self, key: str, seed: int) -> None:
        os.write(
            self._calls, f"{time.time()} {key} {seed}\n".encode()
        )  # one write, so lines of several processes do not mix

    def next_fault(self, key: str, faults: Sequence[str]) -> str | None:
        """The first fault that no call of this task has had yet."""
        for number, fault in enumerate(faults):
            try:
                os.close(os.open(self._folder / f"{key}.{number}.{fault}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            return fault
        return None


class ChaosExpert(rpc.ExpertServiceServicer):
    """Weaves texts together."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def Infer(self, request: pb.InferRequest, context: Any) -> pb.InferResponse:
        told = json.loads(request.parameters_json)
        fault = None
        if key := told.get("key"):
            self._ledger.called(key, told.get("seed", 0))
            fault = self._ledger.next_fault(key, told["faults"])
        await asyncio.sleep(CALL_SECONDS * Random(request.parameters_json).random())
        text = woven(told["salt"], [value.text for value in request.lists["text"].values])
        outputs = {"text": Value(text=text), "length": Value(json=str(len(text)))}
        return pb.InferResponse(outputs=await befallen(fault, outputs), revision=request.revision)

    async def Progress(self, request: pb.ProgressRequest, context: Any) -> None:  # type: ignore[override]  # stubs only know generators
        """Follows nothing: its calls have no steps."""


async def befallen(fault: str | None, outputs: Mapping[str, Value]) -> Mapping[str, Value]:
    """What the caller gets instead of the outputs.

    Raises:
        ServiceError: the fault is an error.
    """
    match fault:
        case "unavailable":
            raise Unavailable("the expert is said to be away")
        case "overloaded":
            raise Overloaded("the expert is said to be busy", retry_after=timedelta(seconds=0.2))
        case "broken":
            raise ModelFailed("the model is said to be broken")
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
    """The expert's server."""
    servicer = ChaosExpert(Ledger(settings.ledger))  # type: ignore[abstract]  # nobody asks it to describe itself
    register = partial(rpc.add_ExpertServiceServicer_to_server, servicer)
    service = pb.DESCRIPTOR.services_by_name["ExpertService"]
    async with serving(register, service, listen=settings.listen) as running:
        yield running


if __name__ == "__main__":
    run("chaos-expert", expert, Settings)

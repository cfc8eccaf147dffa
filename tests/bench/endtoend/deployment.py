"""All services, one process each as in a cluster, with an expert and a scripted LLM of known delays."""

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.expert_pb2 import InferRequest
from protos.hugginggpt.v1.task_pb2 import Parameter, TaskSpec
from tests.bench.endtoend.scripted_llm import ScriptedReplies
from tests.bench.service_processes import start_services
from tests.bench.shapes import SPEC, TASK, Script
from tests.fakes import FakeExpert, ScriptedLLM, card

EXPERT_SECONDS = 0.05
"""Delay of a task without the parameter seconds."""
EMBEDDED_TASKS = ("text-generation", "summarization", "translation")
"""Tasks that the embedded planner plans from the requests."""
ROLES = ("planner", "selector", "responder")

_SECONDS = Parameter(name="seconds", json_schema='{"type":"number"}', description="Duration of the task.")
DELAYED_TASK = TaskSpec(parameters=[_SECONDS])
DELAYED_TASK.MergeFrom(SPEC)
_LLM_LIMITS = {"llm_context_tokens": "65536", "llm_answer_tokens": "16384", "llm_concurrency": "256"}
"""Sufficient for plans of a hundred tasks, whose models are selected concurrently."""


async def delayed_answer(call: InferRequest) -> Mapping[str, Value]:
    """Output of the expert, after the seconds in the call's parameters."""
    parameters = json.loads(call.parameters_json or "{}")
    await asyncio.sleep(parameters.get("seconds", EXPERT_SECONDS))
    return {"text": Value(text="done")}


@asynccontextmanager
async def serve_scripted_llm(*scripts: Script) -> AsyncIterator[ScriptedLLM]:
    """Serves an LLM that plans these scripts."""
    async with ScriptedLLM.serving(ScriptedReplies(*scripts)) as llm:
        yield llm


@dataclass(frozen=True)
class Addresses:
    """Addresses that the clients call.

    Attributes:
        gateway: URL of the HTTP API.
        expert: host:port.
    """

    gateway: str
    expert: str


@asynccontextmanager
async def start_deployment(home: Path, llm: ScriptedLLM, llm_roles: Collection[str]) -> AsyncIterator[Addresses]:
    """Starts the services, and yields their addresses once the gateway accepts runs.

    Args:
        home: folder for journal and logs.
        llm: the scripted LLM.
        llm_roles: those of planner, selector and responder that call it.
    """
    cards = [card(f"{TASK}-{size}", TASK, f"A {size} model.") for size in ("large", "small")]
    cards += [card(task, task) for task in EMBEDDED_TASKS]
    endpoint = {"llm_base_url": llm.base_url, "llm_model": "scripted", "llm_internal": "true", **_LLM_LIMITS}
    settings = dict.fromkeys(llm_roles, endpoint)
    delayed = FakeExpert("delayed", cards, specs=[DELAYED_TASK], answer=delayed_answer)
    async with delayed.serving() as expert, start_services(home, expert, settings) as (_, http):
        yield Addresses(f"http://{http}", expert)

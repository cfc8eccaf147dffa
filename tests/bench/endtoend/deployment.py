"""All services but the expert and the LLM, a process each as in a cluster; those two have a pace that is known."""

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.expert_pb2 import InferRequest
from protos.hugginggpt.v1.task_pb2 import Parameter, TaskSpec
from tests.bench.endtoend.scripted_llm import Speaker
from tests.bench.service_processes import rooms
from tests.bench.shapes import SPEC, TASK, Script
from tests.fakes import FakeExpert, ScriptedLLM, card

EXPERT_SECONDS = 0.05
"""Of a task that does not say how long it takes."""
WORDS_TASKS = ("text-generation", "summarization", "translation")
"""What a request in words can be planned to without an LLM."""
ROLES = ("planner", "selector", "responder")

PACED = TaskSpec(parameters=[Parameter(name="seconds", json_schema='{"type":"number"}', description="How long.")])
PACED.MergeFrom(SPEC)
_ROOM = {"llm_context_tokens": "65536", "llm_answer_tokens": "16384", "llm_concurrency": "256"}
"""For plans of a hundred tasks, and their models chosen all at once."""


async def pace(call: InferRequest) -> Mapping[str, Value]:
    """The paced expert's answer, after the seconds that the call's parameters name."""
    told = json.loads(call.parameters_json or "{}")
    await asyncio.sleep(told.get("seconds", EXPERT_SECONDS))
    return {"text": Value(text="done")}


@asynccontextmanager
async def speaking(*scripts: Script) -> AsyncIterator[ScriptedLLM]:
    """The LLM that plans them."""
    async with ScriptedLLM.serving(Speaker(*scripts)) as llm:
        yield llm


@dataclass(frozen=True)
class Addresses:
    """Addresses of what a benchmark calls."""

    gateway: str
    """The URL of its HTTP API."""
    expert: str
    """host:port."""


@asynccontextmanager
async def standing(home: Path, llm: ScriptedLLM, asking: Collection[str]) -> AsyncIterator[Addresses]:
    """Gives the addresses, once runs can be requested from the gateway.

    Args:
        home: where the journal and logs are.
        llm: for those who ask one.
        asking: who of planner, selector and responder does.
    """
    cards = [card(f"{TASK}-{size}", TASK, f"A {size} model.") for size in ("large", "small")]
    cards += [card(task, task) for task in WORDS_TASKS]
    endpoint = {"llm_base_url": llm.base_url, "llm_model": "scripted", "llm_internal": "true", **_ROOM}
    paced = FakeExpert("paced", cards, specs=[PACED], answer=pace)
    async with paced.serving() as expert, rooms(home, expert, dict.fromkeys(asking, endpoint)) as (_, http):
        yield Addresses(f"http://{http}", expert)

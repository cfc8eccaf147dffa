"""Bulk jobs with tasks on an LLM: calls at the same time, retries, and the data policy."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.llm import ErrorReply, ScriptedLLM, TextReply
from tests.support.bulk import CLASSIFY, EndedJob, read_table, run_job

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_llm")]

PLAN = [{"id": 1, "task": "summarization", "args": {"text": {"input": "letter"}}}]


def write_letters(folder: Path, count: int) -> Path:
    folder.mkdir()
    for index in range(count):
        (folder / f"{index:02}.txt").write_text(f"Letter {index} is long.")
    return folder


async def run(tmp_path: Path, llm: ScriptedLLM, letters: Path, **pipeline: Any) -> EndedJob:
    environment = {"LLM_BASE_URL": llm.base_url, "LLM_MODEL": "little:7b", "LLM_RETRY_SECONDS": "0.01"}
    fields = {"pipeline": {**CLASSIFY, "plan": PLAN, **pipeline}, "experts": ["llm"]}
    return await asyncio.to_thread(run_job, tmp_path, [letters], tmp_path / "out", environment, **fields)


async def test_rows_are_answered_by_the_llm_after_a_retry(tmp_path: Path) -> None:
    refused = [True] * 3

    def reply(body: Mapping[str, Any]) -> TextReply | ErrorReply:
        if refused:
            refused.pop()
            return ErrorReply(503)
        return TextReply("Short " + json.dumps(body).partition("Letter ")[2].split()[0])

    async with ScriptedLLM.serving(reply) as llm:
        job = await run(tmp_path, llm, write_letters(tmp_path / "in", 20))
    assert job.status == 0, job.errors
    rows = read_table(tmp_path / "out")
    assert {name: row["text"] for name, row in rows.items()} == {f"{i:02}.txt": f"Short {i}" for i in range(20)}
    assert refused == []


async def test_llm_outside_the_deployment_is_refused_under_a_local_policy(tmp_path: Path) -> None:
    async with ScriptedLLM.serving([]) as llm:
        job = await run(tmp_path, llm, write_letters(tmp_path / "in", 1), policy="local")
    assert job.status == 1
    assert "outside this deployment, but the data policy is local" in job.errors

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs

from experts.host.handler import Handler
from protos.hugginggpt.v1.model_pb2 import MODEL_STATE_FAILED
from services.common import errors
from tests.support.crashing_model import (
    RemoteModel,
    crash_on_load,
    fail_on_load,
    hang_on_load,
    load_crashing,
    load_remote,
)
from tests.support.expert_host import SERVING, Host, Start, hosts

pytestmark = pytest.mark.slow


@pytest.fixture
async def start_host(tmp_path: Path) -> AsyncIterator[Start]:
    async with hosts(tmp_path) as start_host:

        async def with_workers(*loaders: Any, **settings: Any) -> Host:
            return await start_host(*loaders, **{"workers": "process", "preload": ["m"], **settings})

        yield with_workers


async def worker_pid(host: Host) -> int:
    """Returns the process id of the model's worker."""
    return int((await host.infer("where")).outputs["text"].text.split()[1])


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


async def wait_until_dead(process: int) -> None:
    async with asyncio.timeout(5):
        while is_alive(process):
            await asyncio.to_thread(lambda: None)


async def test_model_runs_in_its_own_process(start_host: Start) -> None:
    host = await start_host(load_crashing)
    await host.until(SERVING, "m")
    process = await worker_pid(host)
    assert process != os.getpid()
    assert is_alive(process)
    reply = await host.infer("hello", tenant="acme")
    assert reply.outputs["text"].text == f"hello {process}"
    assert '"tenant":"acme"' in reply.outputs["data"].json
    (card, _) = (await host.describe()).models
    assert card.loaded_bytes > 10**6
    await host.stop()
    await wait_until_dead(process)


@pytest.mark.parametrize(
    ("word", "code", "reason", "message"),
    [
        ("segfault", "INTERNAL", "MODEL_FAILED", "SIGSEGV"),
        ("exit", "INTERNAL", "MODEL_FAILED", "exit status 3"),
        ("killed", "RESOURCE_EXHAUSTED", "OUT_OF_MEMORY", "memory"),
        ("stuck", "INTERNAL", "MODEL_FAILED", "did not finish within 2 s"),
        ("unreadable", "INTERNAL", "MODEL_FAILED", "SIGSEGV"),
    ],
)
async def test_dead_worker_fails_one_call_and_is_restarted(
    start_host: Start, word: str, code: str, reason: str, message: str
) -> None:
    host = await start_host(load_crashing, device_seconds=2.0 if word == "stuck" else 30.0)
    before = await worker_pid(host)
    error = await host.refusal(text=word)
    assert error.code.name == code
    assert error.reason == reason
    assert message in error.message
    assert error.remedy
    after = await worker_pid(host)
    assert after != before
    await wait_until_dead(before)
    assert await host.health("", "liveness") == [SERVING, SERVING]


@pytest.mark.parametrize(
    ("word", "code", "reason"),
    [("dark", "INVALID_ARGUMENT", "INVALID"), ("bug", "INTERNAL", "MODEL_FAILED")],
)
async def test_model_error_is_returned_without_a_restart(start_host: Start, word: str, code: str, reason: str) -> None:
    host = await start_host(load_crashing)
    before = await worker_pid(host)
    error = await host.refusal(text=word)
    assert error.code.name == code
    assert error.reason == reason
    assert "secret" not in error.message
    assert await worker_pid(host) == before


async def test_batch_peers_of_a_call_that_killed_the_worker_succeed(start_host: Start) -> None:
    host = await start_host(load_crashing)
    first = host.infer("long", call_id="long")
    while (await host.describe()).load.running == 0:
        pass
    calls: list[Any] = [host.infer(word) for word in ("a", "segfault", "b")]
    await host.until_waiting(3)
    first.cancel()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await calls[1]
    assert errors.from_rpc(caught.value).reason == "MODEL_FAILED"
    replies = [await calls[0], await calls[2]]
    assert [reply.outputs["text"].text.split()[0] for reply in replies] == ["a", "b"]


async def test_cancellation_reaches_the_model_in_a_worker(start_host: Start) -> None:
    host = await start_host(load_crashing)
    process = await worker_pid(host)
    call = host.infer("long")
    while (await host.describe()).load.running == 0:
        pass
    call.cancel()
    assert await worker_pid(host) == process


async def test_other_models_answer_while_one_worker_dies(start_host: Start) -> None:
    host = await start_host(load_crashing, load_crashing, preload=["m", "other"])
    dying_call = host.infer("segfault")
    reply = await host.infer("hello", model="other")
    assert reply.outputs["text"].text.startswith("hello ")
    with pytest.raises(Exception, match="SIGSEGV"):
        await dying_call


@pytest.mark.parametrize(("loader", "message"), [(crash_on_load, "SIGSEGV"), (fail_on_load, "no licence")])
async def test_load_failure_in_a_worker_is_reported(start_host: Start, loader: Any, message: str) -> None:
    host = await start_host(loader, preload=[])
    error = await host.refusal()
    assert error.code.name == "FAILED_PRECONDITION"
    assert error.reason == "LOAD_FAILED"
    assert message in error.message
    assert (await host.describe()).models[0].state == MODEL_STATE_FAILED


async def test_load_timeout_in_a_worker_keeps_the_expert_alive(start_host: Start) -> None:
    with capture_logs() as logs:
        host = await start_host(hang_on_load, preload=[], load_seconds=0.2, device_seconds=0.2)
        error = await host.refusal()
    assert error.code.name == "FAILED_PRECONDITION"
    assert error.reason == "LOAD_FAILED"
    assert "did not load within 0.2 s" in error.message
    assert "EXPERT_LOAD_SECONDS" in error.remedy
    assert await host.health("liveness") == [SERVING]
    assert not [entry for entry in logs if entry["log_level"] == "error"]


async def test_loader_that_cannot_be_pickled_is_refused(start_host: Start) -> None:
    def local(model_id: str, device: str) -> Handler:
        return load_crashing(model_id, device)

    error = await (await start_host(local, preload=[])).refusal()
    assert error.reason == "LOAD_FAILED"
    assert "cannot run in a worker process" in error.message
    assert "top level of a module" in error.remedy


async def test_remote_model_runs_without_a_worker_process(start_host: Start) -> None:
    def local(model_id: str, device: str) -> RemoteModel:
        return RemoteModel()

    host = await start_host(load_remote, local, preload=["other"])
    for model in ("m", "other"):
        assert (await host.infer("hello", model=model)).outputs["text"].text == f"hello {os.getpid()}"

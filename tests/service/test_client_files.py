"""Files in the Python client: uploads of every kind, stored files, and downloads over broken connections."""

import asyncio
import hashlib
import resource
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.client import (
    Artifact,
    AsyncHuggingGPT,
    Attachment,
    Damaged,
    HuggingGPT,
    InvalidRequest,
    NotFound,
    Run,
    Source,
    Unauthenticated,
    attachments,
)
from protos.hugginggpt.v1.task_pb2 import CatalogTask, TaskSpec
from tests.fakes import ScriptedSelector, card
from tests.support.api_keys import start_keyed_gateway
from tests.support.cut_connection import after_bytes, cutting_proxy
from tests.support.gateway import GatewayUnderTest, start_gateway

LARGE = 40_000_000


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HUGGINGGPT_URL", "HUGGINGGPT_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[GatewayUnderTest]:
    selector = ScriptedSelector(
        [CatalogTask(spec=TaskSpec(name="shouting"), experts=["a"])], [card("loud", "shouting", "Loud.")]
    )
    async with start_gateway(tmp_path, selector=selector, settings={"fetch_urls": False}) as opened:
        yield opened


def url(gateway: GatewayUnderTest) -> str:
    return f"http://127.0.0.1:{gateway.http_port}"


async def test_all_kinds_of_files_become_inputs_in_order(gateway: GatewayUnderTest, tmp_path: Path) -> None:
    note = tmp_path / 'a "note".txt'
    note.write_text("from a path")
    async with AsyncHuggingGPT(url(gateway)) as client:
        stored = await client.upload(b"kept", purpose="test", expires_after=3600)
        made = await client.upload(Attachment("made.txt", b"made"))
        sources: list[Source] = [note, stored.id, b"bytes", made, made.artifact, str(note)]
        run = await client.ask("look", sources)
        plain = await client.ask("look", [note, b"bytes"])
    inputs = gateway.orchestrator.runs[run.run_id].spec.inputs
    assert [named.name for named in inputs] == [f"file{number}" for number in range(1, 7)]
    names = [named.value.artifact.name for named in inputs]
    assert names == ['a "note".txt', "file1", "file3", "made.txt", "made.txt", 'a "note".txt']
    assert [named.value.artifact.name for named in gateway.orchestrator.runs[plain.run_id].spec.inputs] == [
        'a "note".txt',
        "file2",
    ]


async def test_stored_files_are_listed_shown_and_deleted(gateway: GatewayUnderTest) -> None:
    async with AsyncHuggingGPT(url(gateway)) as client:
        ids = [(await client.upload(bytes([65 + number]) * 9)).id for number in range(3)]
        page = await client.files(limit=2)
        rest = await client.files(after=page.next)
        assert [file.id for file in (*page, *rest)] == ids[::-1]
        assert (await client.file(ids[0])).artifact.size_bytes == 9
        await client.delete_file(ids[0])
        with pytest.raises(NotFound):
            await client.file(ids[0])


async def test_invalid_files_are_reported_before_sending(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    async with AsyncHuggingGPT("http://127.0.0.1:9") as client:
        for source, message in (
            (tmp_path / "missing.png", "No such file"),
            (tmp_path, "is a folder"),
            (tmp_path / "empty.txt", "is empty"),
            (b"", "is empty"),
        ):
            with pytest.raises(InvalidRequest, match=message):
                await client.ask("look", [source])
        with pytest.raises(InvalidRequest, match="is not a local file"):
            await client.upload("https://example.org/a.png")


@pytest.mark.parametrize("waiting", [True, False], ids=["waiting", "asyncio"])
async def test_large_file_is_transferred_with_constant_memory(
    gateway: GatewayUnderTest, tmp_path: Path, waiting: bool
) -> None:
    file, progress = tmp_path / "large.bin", list[tuple[int, int]]()
    with file.open("wb") as large:
        large.write(b"\0begin")
        large.truncate(LARGE)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def send_and_save(folder: Path) -> list[Path]:
        with HuggingGPT(url(gateway), on_sent=lambda *sent: progress.append(sent)) as client:
            client.start("look", [file])
            return client.save(client.upload(file), folder)

    if waiting:
        (saved,) = await asyncio.to_thread(send_and_save, tmp_path / "out")
    else:
        async with AsyncHuggingGPT(url(gateway), on_sent=lambda *sent: progress.append(sent)) as client:
            await client.start("look", [file])
            (saved,) = await client.save(await client.upload(file), tmp_path / "out")
    assert _digest(saved) == _digest(file)
    assert progress[-1][0] == progress[-1][1] > LARGE
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < LARGE, "of gateway and client together"
    assert LARGE > attachments.FORM_BYTES


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


async def test_download_resumes_after_broken_connection(gateway: GatewayUnderTest, tmp_path: Path) -> None:
    content = bytes(range(256)) * 40_000
    async with AsyncHuggingGPT(url(gateway)) as client:
        artifact = (await client.upload(Attachment("speech.bin", content))).artifact
    async with (
        cutting_proxy(gateway.http_port, after_bytes(4_000_000), times=2) as proxy,
        AsyncHuggingGPT(proxy.url) as client,
    ):
        assert await client.save(artifact, tmp_path / "out") == [tmp_path / "out" / "speech.bin"]
    assert proxy.cuts == 2
    assert (tmp_path / "out" / "speech.bin").read_bytes() == content


async def test_saved_files_stay_in_folder_and_do_not_overwrite(gateway: GatewayUnderTest, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "a.txt").write_text("mine")
    async with AsyncHuggingGPT(url(gateway)) as client:
        artifact = (await client.upload(Attachment("a.txt", b"theirs"))).artifact
        assert (await client.artifact(artifact.sha256)) == artifact
        sly = artifact.model_copy(update={"name": "../a.txt"})
        assert await client.save(sly, out) == await client.save(artifact, out) == [out / "a-2.txt"]
        assert await client.read(artifact) == b"theirs"
        wrong = Artifact(sha256="0" * 64, name="b.txt")
        with pytest.raises(NotFound):
            await client.save(wrong, out)
    assert sorted(file.name for file in out.iterdir()) == ["a-2.txt", "a.txt"]


async def test_bytes_with_wrong_digest_are_not_saved(gateway: GatewayUnderTest, tmp_path: Path) -> None:
    async with AsyncHuggingGPT(url(gateway)) as client:
        artifact = (await client.upload(b"whole")).artifact
        path = gateway.store.path("default", artifact.sha256)
        assert path
        path.chmod(0o600)
        path.write_bytes(b"wholf")
        with pytest.raises(Damaged):
            await client.save(artifact, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


async def test_catalog_is_returned_as_models(gateway: GatewayUnderTest) -> None:
    async with AsyncHuggingGPT(url(gateway)) as client:
        (task,), (model,) = await client.tasks(), await client.models("shouting")
    assert task.name == "shouting"
    assert task.experts == ("a",)
    assert model.id == "loud"
    assert model.description == "Loud."


async def test_api_key_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with start_keyed_gateway(tmp_path) as holders:
        address = url(holders.gateway)
        with pytest.raises(Unauthenticated):
            async with AsyncHuggingGPT(address) as client:
                await client.runs()
        async with AsyncHuggingGPT(address, await holders.token("a")) as client:
            run = await client.ask("mine")
        monkeypatch.setenv("HUGGINGGPT_URL", address)
        monkeypatch.setenv("HUGGINGGPT_API_KEY", await holders.token("b"))
        async with AsyncHuggingGPT() as client:
            assert list(await client.runs()) == []
            with pytest.raises(NotFound):
                await client.get(run.run_id)


def test_run_is_returned_as_model() -> None:
    document = {
        "run_id": "run_1",
        "state": "completed",
        "tasks": [
            {
                "task": {"id": 1, "task": "text-to-speech", "arguments": {}},
                "state": "succeeded",
                "result": {
                    "by": {"model_id": "m", "revision": "r", "expert": "e"},
                    "outputs": {"audio": {"artifact": {"sha256": "00", "name": "a.wav"}}, "x": {"json": "y"}, "z": [1]},
                },
            }
        ],
        "new": 1,
    }
    run = Run.model_validate(document)
    assert run.artifacts == [Artifact(sha256="00", name="a.wav")]
    assert run.tasks[0].outputs == {"audio": run.artifacts[0], "x": "y", "z": [1]}
    assert run.plan == [
        {"id": 1, "task": "text-to-speech", "arguments": {}, "pinned_model": "m", "pinned_revision": "r"}
    ]

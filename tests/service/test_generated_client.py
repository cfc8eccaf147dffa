"""Clients generated from the committed OpenAPI document have every operation, and work against a gateway."""

import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module, invalidate_caches
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from services.orchestrator.settings import Settings
from tests.openapi import DOCUMENT
from tests.support.orchestrator import END, ScriptedPeers, task
from tests.support.pipeline_gateway import PINNED, notes, start_pipeline_gateway
from tests.support.required_programs import GENERATOR

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.needs(GENERATOR.name)]

PACKAGE = "generated_client"


@dataclass(frozen=True)
class GeneratedClient:
    """A package written by openapi-python-client."""

    folder: Path
    output: str
    """What the generator printed; its warnings name what it left out."""

    def operation(self, tag: str, name: str) -> Any:
        return import_module(f"{PACKAGE}.api.{tag}.{name}")

    @property
    def models(self) -> Any:
        return import_module(f"{PACKAGE}.models")

    @property
    def types(self) -> Any:
        return import_module(f"{PACKAGE}.types")

    def connect(self, url: str) -> Any:
        return import_module(PACKAGE).Client(url, raise_on_unexpected_status=True)


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GeneratedClient]:
    parent = tmp_path_factory.mktemp("generated")
    folder, configuration = parent / PACKAGE, parent / "configuration.json"
    configuration.write_text(json.dumps({"post_hooks": []}), encoding="utf-8")
    output = asyncio.run(generate(folder, configuration))
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.syspath_prepend(parent)
        invalidate_caches()
        yield GeneratedClient(folder, output)
        for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
            del sys.modules[name]


async def generate(folder: Path, configuration: Path) -> str:
    """Runs openapi-python-client and returns its output."""
    process = await asyncio.create_subprocess_exec(
        *(GENERATOR, "generate", "--meta", "none"),
        *("--path", DOCUMENT, "--output-path", folder, "--config", configuration),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(120):
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


def test_generated_client_has_every_operation(generated: GeneratedClient) -> None:
    paths = json.loads(DOCUMENT.read_text(encoding="utf-8"))["paths"]
    described = {operation["operationId"] for methods in paths.values() for operation in methods.values()}
    modules = {path.stem for path in generated.folder.glob("api/*/*.py")} - {"__init__"}
    assert modules == described


def test_generator_leaves_out_only_json_lines(generated: GeneratedClient) -> None:
    warnings = [line for line in generated.output.splitlines() if line.startswith(("Unsupported", "Cannot"))]
    assert warnings == ["Unsupported content type application/x-ndjson"], generated.output


async def test_generated_client_runs_a_file_and_a_batch(
    generated: GeneratedClient, peers: ScriptedPeers, settings: Settings, tmp_path: Path
) -> None:
    peers.plan(task(1), END)
    models = generated.models
    async with (
        start_pipeline_gateway(peers, settings, tmp_path) as pipeline_gateway,
        generated.connect(f"http://127.0.0.1:{pipeline_gateway.gateway.http_port}") as client,
    ):
        letter = generated.types.File(payload=BytesIO(b"Dear all"), file_name="letter.txt", mime_type="text/plain")
        body = models.CreateRunFilesBody(request="summarize it", file=[letter])
        run = await generated.operation("runs", "create_run").asyncio(client=client, body=body, prefer="wait=30")
        assert run.state == models.RunState.COMPLETED
        artifact = run.spec.inputs[0].artifact
        assert artifact.name == "letter.txt"

        download = await generated.operation("artifacts", "download_artifact").asyncio(artifact.sha256, client=client)
        assert download.payload.read() == b"Dear all"

        batches = "pipeline_batches"
        request = models.BatchRequest.from_dict({"plan": PINNED, "items": notes(2)})
        started = await generated.operation(batches, "create_pipeline_batch").asyncio(client=client, body=request)
        events = await generated.operation(batches, "stream_pipeline_batch_events").asyncio(
            started.batch_id, client=client
        )
        assert events.startswith("retry:")
        batch = await generated.operation(batches, "get_pipeline_batch").asyncio(started.batch_id, client=client)
        assert batch.state == models.BatchState.COMPLETED

        results = await generated.operation(batches, "get_pipeline_batch_results").asyncio(
            started.batch_id, client=client
        )
        outputs = [json.loads(line)["outputs"]["text"] for line in results.payload]
        assert outputs == ["note 1!", "note 2!"]

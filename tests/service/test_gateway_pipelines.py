"""Pipelines over HTTP and gRPC."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from gateway.cli.run_progress import RunProgress
from gateway.client import Event
from protos.hugginggpt.v1 import gateway_pb2
from protos.hugginggpt.v1 import gateway_pb2 as pb
from protos.hugginggpt.v1.artifact_pb2 import NamedValue, Value
from protos.hugginggpt.v1.pipeline_pb2 import PipelineRef
from protos.hugginggpt.v1.run_pb2 import RunSpec
from services.orchestrator.settings import Settings
from tests.support.orchestrator import END, ScriptedPeers, task
from tests.support.pipeline_gateway import PINNED, PLAN, PipelineGateway, start_pipeline_gateway


@pytest.fixture
async def pipeline_gateway(peers: ScriptedPeers, settings: Settings, tmp_path: Path) -> AsyncIterator[PipelineGateway]:
    async with start_pipeline_gateway(peers, settings, tmp_path) as pipeline_gateway:
        yield pipeline_gateway


async def test_changed_plan_becomes_the_next_version(pipeline_gateway: PipelineGateway) -> None:
    first = await pipeline_gateway.save(plan=PLAN, description="shortens")
    assert first.status_code == 201
    assert first.headers["location"] == "/v1/pipelines/short?version=1"
    assert first.json()["inputs"][0]["name"] == "note"
    assert first.json()["description"] == "shortens"
    assert (await pipeline_gateway.save(plan=PLAN, description="shortens")).status_code == 200
    second = await pipeline_gateway.save(plan=PINNED)
    assert second.status_code == 201
    assert second.json()["version"] == 2
    shown = (await pipeline_gateway.http.get("/v1/pipelines/short")).json()
    assert shown["version"] == 2
    assert shown["plan"][0]["pinned_model"] == "model"
    assert (await pipeline_gateway.http.get(first.headers["location"])).json() == first.json()


async def test_pipelines_and_versions_are_paginated(pipeline_gateway: PipelineGateway) -> None:
    for name in ("b", "a", "c"):
        await pipeline_gateway.save(name)
    await pipeline_gateway.save("a", plan=PLAN)
    page = (await pipeline_gateway.http.get("/v1/pipelines", params={"page_size": 2})).json()
    assert [each["name"] for each in page["data"]] == ["a", "b"]
    rest = await pipeline_gateway.http.get("/v1/pipelines", params={"page_token": page["next_page_token"]})
    assert [each["name"] for each in rest.json()["data"]] == ["c"]
    assert "next_page_token" not in rest.json()
    versions = (await pipeline_gateway.http.get("/v1/pipelines/a/versions")).json()
    assert [each["version"] for each in versions["data"]] == [2, 1]


async def test_deleted_version_number_is_not_reused(pipeline_gateway: PipelineGateway) -> None:
    await pipeline_gateway.save()
    await pipeline_gateway.save(plan=PLAN)
    assert (await pipeline_gateway.http.delete("/v1/pipelines/short", params={"version": 2})).status_code == 204
    assert (await pipeline_gateway.http.get("/v1/pipelines/short")).json()["version"] == 1
    assert (await pipeline_gateway.http.delete("/v1/pipelines/short")).status_code == 204
    for path in ("/v1/pipelines/short", "/v1/pipelines/short/versions"):
        missing = await pipeline_gateway.http.get(path)
        assert missing.status_code == 404
        assert missing.json()["code"] == "PIPELINE"
    assert (await pipeline_gateway.save()).json()["version"] == 3


async def test_pipeline_run_needs_no_planning(pipeline_gateway: PipelineGateway) -> None:
    await pipeline_gateway.save()
    pipeline_gateway.peers.planned.clear()
    spec = {"pipeline": {"name": "short"}, "inputs": [{"name": "note", "text": "a long note"}]}
    run = (await pipeline_gateway.http.post("/v1/runs", json=spec, headers={"prefer": "wait=20"})).json()
    assert run["state"] == "completed"
    assert run["spec"]["pipeline"]["version"] == 1
    assert run["tasks"][0]["result"]["outputs"]["text"] == "a long note!"
    assert pipeline_gateway.peers.planned == []


async def test_plan_of_a_run_can_be_saved_unchanged(pipeline_gateway: PipelineGateway) -> None:
    pipeline_gateway.peers.plan(task(1), END)
    run = (await pipeline_gateway.gateway.ask("x", headers={"prefer": "wait=20"})).json()
    shown = await pipeline_gateway.save("shown", plan=run["tasks"])
    assert shown.status_code == 201, shown.text
    progress = RunProgress()
    async with pipeline_gateway.http.stream("GET", f"/v1/runs/{run['run_id']}/events") as response:
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                progress.apply(Event.of(json.loads(line.removeprefix("data: "))))
    printed = await pipeline_gateway.save("printed", plan=progress.report([])["plan"])
    assert printed.status_code == 201, printed.text
    assert printed.json()["plan"][0]["arguments"] == {"text": "hello"}
    of_run = await pipeline_gateway.save("of-run", run_id=run["run_id"], pin_models=True)
    assert of_run.json()["plan"][0]["pinned_model"] == "model"


@pytest.mark.parametrize(
    ("name", "body", "status", "code"),
    [
        ("Short", {"plan": PLAN}, 400, "INVALID"),
        ("short", {}, 400, "EMPTY"),
        ("short", {"plan": []}, 400, "EMPTY"),
        ("short", {"plan": PLAN, "run_id": "run_1"}, 400, "INVALID"),
        ("short", {"run_id": "run_1"}, 404, "RUN"),
        ("short", {"plan": [{"id": 1, "task": "dance"}]}, 409, "TASK_UNAVAILABLE"),
        ("short", {"plan": [{**PLAN[0], "model": "other"}]}, 409, "TASK_UNAVAILABLE"),
        ("short", {"plan": PLAN, "name": "other"}, 400, "UNKNOWN_FIELD"),
        ("short", {"plan": PLAN, "policy": "secret"}, 400, "INVALID"),
        ("short", {"plan": PLAN, "inputs": [{"name": "picture"}]}, 400, "INVALID"),
        ("short", {"plan": PLAN, "description": "x" * 10_001}, 400, "INVALID"),
    ],
)
async def test_invalid_pipeline_is_rejected(
    pipeline_gateway: PipelineGateway, name: str, body: dict[str, object], status: int, code: str
) -> None:
    rejected = await pipeline_gateway.http.put(f"/v1/pipelines/{name}", json=body)
    assert rejected.status_code == status, rejected.text
    assert rejected.json()["code"] == code, rejected.text
    assert rejected.json()["remedy"]


async def test_pipeline_file_schema_is_served(pipeline_gateway: PipelineGateway) -> None:
    schema = (await pipeline_gateway.http.get("/v1/pipeline.schema.json")).json()
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(
        {
            "format": "hugginggpt/pipeline/1",
            "name": "short",
            "plan": [{"id": 1, "task": "summarization", "args": {"text": {"input": "note"}}}],
        }
    )


async def test_grpc_pipeline_methods(pipeline_gateway: PipelineGateway) -> None:
    stub = pipeline_gateway.gateway.grpc
    plan = RunSpec()
    await pipeline_gateway.save("other")
    pipeline = await stub.GetPipeline(pb.GetPipelineRequest(name="other"), timeout=10)
    plan.plan.CopyFrom(pipeline.plan)
    saved = await stub.SavePipeline(pb.SavePipelineRequest(name="short", plan=plan.plan), timeout=10)
    assert saved.version == 1
    listed = await stub.ListPipelines(pb.ListPipelinesRequest(), timeout=10)
    assert [each.name for each in listed.pipelines] == ["other", "short"]
    spec = RunSpec(pipeline=PipelineRef(name="short"), inputs=[NamedValue(name="note", value=Value(text="x"))])
    events = [event async for event in stub.CreateRun(gateway_pb2.CreateRunRequest(spec=spec), timeout=20)]
    assert events[-1].HasField("run_ended")
    await stub.DeletePipeline(pb.DeletePipelineRequest(name="short"), timeout=10)
    assert len((await stub.ListPipelines(pb.ListPipelinesRequest(), timeout=10)).pipelines) == 1

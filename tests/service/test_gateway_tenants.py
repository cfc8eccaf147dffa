"""Tenant isolation: every route and gRPC method is called with another tenant's ids."""

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message_factory import GetMessageClass
from grpc import StatusCode

from gateway.openai.event_rendering import RESPONSE, object_id
from protos.hugginggpt.v1 import gateway_pb2
from protos.hugginggpt.v1 import gateway_pb2 as pb
from protos.hugginggpt.v1.artifact_pb2 import Artifact, NamedValue, Value
from protos.hugginggpt.v1.batch_pb2 import BatchSpec
from protos.hugginggpt.v1.gateway_pb2 import GetRunRecordRequest
from protos.hugginggpt.v1.pipeline_pb2 import PipelineRef
from protos.hugginggpt.v1.run_pb2 import RunSpec
from services.orchestrator.__main__ import orchestrator as serve_orchestrator
from services.orchestrator.settings import Settings
from tests.fakes import ScriptedSelector, card
from tests.service.test_gateway_origin import flat
from tests.support.api_keys import KeyedGateway, bearer, metadata, start_keyed_gateway
from tests.support.gateway import rpc_error
from tests.support.orchestrator import END, ScriptedPeers, task

COMMON = {
    "GET /v1/tasks",
    "GET /v1/models",
    "GET /v1/models/{model}",
    "GET /v1/experts",
    "GET /v1/schemas/record",
    "GET /v1/pipeline.schema.json",
    "DELETE /v1/experts/{name}",
    "GET /healthz",
    "GET /readyz",
    "GET /openapi.json",
    "GET /docs",
    "GET /docs/start.js",
    "GET /docs/swagger-ui.css",
    "GET /docs/swagger-ui-bundle.js",
    "GET /",
    "HEAD /",
    "GET /web/{version}/{name}",
    "HEAD /web/{version}/{name}",
}
"""Routes without data of tenants."""

LISTS = {
    "GET /v1/runs",
    "GET /v1/files",
    "GET /v1/conversations",
    "GET /v1/webhooks",
    "GET /v1/pipelines",
    "GET /v1/pipeline-batches",
    "GET /v1/batches",
}
"""Routes that list objects of the caller's tenant."""

MAKE = {
    "POST /v1/runs",
    "POST /v1/files",
    "POST /v1/artifacts",
    "POST /v1/chat/completions",
    "POST /v1/responses",
    "POST /v1/webhooks",
    "POST /v1/pipeline-batches",
    "POST /v1/batches",
    "POST /v1/embeddings",
    "POST /v1/audio/transcriptions",
    "POST /v1/audio/speech",
    "POST /v1/images/generations",
    "PUT /v1/pipelines/{name}",
    "POST /mcp",
}
"""Routes that create objects; NAMING and test_mcp_tenants test references to other tenants' objects."""

NOTE = [{"inputs": [{"name": "note", "text": "x"}]}]
OF_A = {"artifact": {"sha256": "{sha256}"}}
NAMING: list[tuple[str, dict[str, Any]]] = [
    ("/v1/runs", {"request": "x", "inputs": [{"artifact": {"sha256": "{sha256}"}}]}),
    ("/v1/runs", {"request": "x", "history": [{"text": "x", "attachments": [{"artifact": {"sha256": "{sha256}"}}]}]}),
    ("/v1/runs", {"request": "x", "parent_run_id": "{run_id}"}),
    ("/v1/runs", {"pipeline": {"name": "{name}"}, "inputs": [{"name": "note", "text": "x"}]}),
    ("/v1/pipeline-batches", {"pipeline": {"name": "{name}"}, "items": NOTE}),
    ("/v1/pipeline-batches", {"run_id": "{run_id}", "items": NOTE}),
    (
        "/v1/pipeline-batches",
        {"plan": [{"id": 1, "task": "image-to-text", "arguments": {"image": OF_A}}], "items": NOTE},
    ),
    ("/v1/batches", {"input_file_id": "{file_id}", "endpoint": "/v1/embeddings", "completion_window": "24h"}),
    ("/v1/responses", {"model": "hugginggpt", "input": "x", "previous_response_id": "{response_id}"}),
    (
        "/v1/responses",
        {
            "model": "hugginggpt",
            "input": [{"role": "user", "content": [{"type": "input_file", "file_id": "{file_id}"}]}],
        },
    ),
    (
        "/v1/chat/completions",
        {
            "model": "hugginggpt",
            "messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "{file_id}"}}]}],
        },
    ),
]


class TenantObjects:
    """A gateway, and one object of each kind of tenant a; tenant b has only a key."""

    def __init__(self, keyed_gateway: KeyedGateway) -> None:
        self.keyed_gateway = keyed_gateway
        self.gateway = keyed_gateway.gateway
        self.a = self.b = ""
        self.ids: dict[str, str] = {}

    async def furnish(self) -> None:
        self.a, self.b = [await self.keyed_gateway.token(name, admin=True) for name in "ab"]
        answer = await self.gateway.ask("do it", headers={**bearer(self.a), "prefer": "wait=20"})
        run = answer.json()
        assert answer.status_code == 200
        assert run["state"] == "completed"
        stored = await self.gateway.http.post(
            "/v1/files", data={"purpose": "user_data"}, files={"file": ("a.txt", b"of a")}, headers=bearer(self.a)
        )
        file = stored.json()
        path = f"/v1/runs/{run['run_id']}/verify"
        again = (await self.gateway.http.post(path, headers=bearer(self.a))).json()
        webhook_spec = {"url": "https://hooks.invalid/"}
        webhook = await self.gateway.http.post("/v1/webhooks", json=webhook_spec, headers=bearer(self.a))
        plan = [{"id": 1, "task": "summarization", "arguments": {"text": {"input": "note"}}}]
        await self.gateway.http.put("/v1/pipelines/of-a", json={"plan": plan}, headers=bearer(self.a))
        openai_batch_spec = {"endpoint": "/v1/embeddings", "input_file_id": file["id"], "completion_window": "24h"}
        openai_batch = await self.gateway.http.post("/v1/batches", json=openai_batch_spec, headers=bearer(self.a))
        batch_spec = {"pipeline": {"name": "of-a"}, "items": NOTE}
        batch = await self.gateway.http.post("/v1/pipeline-batches", json=batch_spec, headers=bearer(self.a))
        self.ids = {
            "name": "of-a",
            "batch_id": batch.json()["batch_id"],
            "openai_batch_id": openai_batch.json()["id"],
            "again_id": again["again_run_id"],
            "run_id": run["run_id"],
            "conversation_id": run["conversation_id"],
            "response_id": object_id(RESPONSE, run["run_id"]),
            "file_id": file["id"],
            "webhook_id": webhook.json()["id"],
            "sha256": file["artifact"]["sha256"],
            "secret": "unknown",
        }

    def filled(self, template: Any) -> Any:
        """A template filled with the ids of tenant a's objects."""
        match template:
            case str():
                return re.sub(r"\{(\w+)\}", lambda found: self.ids.get(found[1], found[0]), template)
            case dict():
                return {key: self.filled(value) for key, value in template.items()}
            case list():
                return [self.filled(value) for value in template]
        return template

    def routes(self) -> Iterator[str]:
        for route in flat(self.gateway.app.routes):
            for method in getattr(route, "methods", None) or ("ANY",):
                yield f"{method} {route.path.replace('/v1/batches/{batch_id}', '/v1/batches/{openai_batch_id}')}"


@pytest.fixture
async def tenant_objects(peers: ScriptedPeers, settings: Settings, tmp_path: Path) -> AsyncIterator[TenantObjects]:
    peers.plan(task(1), END)
    peers.candidates[0].candidate.revision = "1"
    async with serve_orchestrator(settings) as running:
        stored = {"orchestrator": f"127.0.0.1:{running.port}", "ARTIFACTS_URL": settings.artifacts_url}
        selector = ScriptedSelector(cards=[card("model", "summarization")])
        async with start_keyed_gateway(tmp_path, stored, selector=selector) as keyed_gateway:
            tenant_objects = TenantObjects(keyed_gateway)
            await tenant_objects.furnish()
            yield tenant_objects


async def test_routes_hide_objects_of_other_tenants(tenant_objects: TenantObjects) -> None:
    tried, own = 0, set()
    for route in tenant_objects.routes():
        method, path = route.split(" ")
        if route in COMMON | LISTS | MAKE:
            continue
        there = tenant_objects.filled(path)
        assert "{" not in there, f"{route} is new: add the ids of its path to this test"
        body = dict[str, str]() if method == "POST" else None
        response = await tenant_objects.gateway.http.request(method, there, headers=bearer(tenant_objects.b), json=body)
        assert response.status_code == 404, (route, response.text)
        if method == "GET" and not path.endswith("/{batch_id}/events"):
            own.add(there)
        tried += 1
    assert tried >= 25
    for path in own:
        response = await tenant_objects.gateway.http.get(path, headers=bearer(tenant_objects.a))
        assert response.status_code == 200, (path, response.text)


async def test_all_routes_are_covered(tenant_objects: TenantObjects) -> None:
    routes = set(tenant_objects.routes())
    assert routes >= COMMON | LISTS | MAKE
    without_ids = {route for route in routes if "{" not in route}
    assert without_ids <= COMMON | LISTS | MAKE


async def test_lists_contain_only_own_objects(tenant_objects: TenantObjects) -> None:
    for route in LISTS:
        path = route.removeprefix("GET ")
        assert (await tenant_objects.gateway.http.get(path, headers=bearer(tenant_objects.a))).json()["data"]
        assert (await tenant_objects.gateway.http.get(path, headers=bearer(tenant_objects.b))).json()["data"] == []
    found = await tenant_objects.gateway.http.get(
        "/v1/runs", params={"conversation_id": tenant_objects.ids["conversation_id"]}, headers=bearer(tenant_objects.b)
    )
    assert found.json()["data"] == []


@pytest.mark.parametrize(("path", "body"), NAMING, ids=lambda value: str(value)[:60])
async def test_objects_of_other_tenants_cannot_be_used(
    tenant_objects: TenantObjects, path: str, body: dict[str, Any]
) -> None:
    response = await tenant_objects.gateway.http.post(
        path, json=tenant_objects.filled(body), headers=bearer(tenant_objects.b)
    )
    assert response.status_code == 404, response.text
    for there in ("/v1/runs", "/v1/pipeline-batches"):
        assert (await tenant_objects.gateway.http.get(there, headers=bearer(tenant_objects.b))).json()["data"] == []


@pytest.mark.parametrize("value", [{"file_id": "{file_id}"}, OF_A], ids=str)
async def test_batch_item_cannot_use_files_of_other_tenants(
    tenant_objects: TenantObjects, value: dict[str, Any]
) -> None:
    plan = [{"id": 1, "task": "summarization", "arguments": {"text": {"input": "note"}}}]
    items = [*NOTE, {"inputs": [{"name": "note", **tenant_objects.filled(value)}]}]
    sent = {"plan": plan, "items": items}
    batch = await tenant_objects.gateway.http.post("/v1/pipeline-batches", json=sent, headers=bearer(tenant_objects.b))
    there = f"/v1/pipeline-batches/{batch.json()['batch_id']}/items"
    _, stored = (await tenant_objects.gateway.http.get(there, headers=bearer(tenant_objects.b))).json()["data"]
    assert stored["state"] == "failed"
    assert stored["inputs"] == []
    assert stored["failure"]["code"] == "NOT_FOUND"


async def test_idempotency_keys_are_separate_per_tenant(tenant_objects: TenantObjects) -> None:
    same = {"idempotency-key": "one"}
    first = await tenant_objects.gateway.ask("x", headers={**bearer(tenant_objects.a), **same})
    second = await tenant_objects.gateway.ask("y", headers={**bearer(tenant_objects.b), **same})
    assert first.status_code == 202
    assert second.status_code == 202
    assert first.json()["run_id"] != second.json()["run_id"]


async def test_equal_content_is_stored_per_tenant(tenant_objects: TenantObjects) -> None:
    there = tenant_objects.filled("/v1/artifacts/{sha256}")
    await tenant_objects.gateway.http.post(
        "/v1/files", data={"purpose": "user_data"}, files={"file": ("b.txt", b"of a")}, headers=bearer(tenant_objects.b)
    )
    response = await tenant_objects.gateway.http.get(there, headers=bearer(tenant_objects.b))
    assert response.status_code == 200
    assert "b.txt" in response.headers["content-disposition"]


async def test_grpc_methods_hide_objects_of_other_tenants(tenant_objects: TenantObjects) -> None:
    run_id, sha256, batch_id = (
        tenant_objects.ids["run_id"],
        tenant_objects.ids["sha256"],
        tenant_objects.ids["batch_id"],
    )
    of_a = NamedValue(value=Value(artifact=Artifact(sha256=sha256)))
    absent = {
        "CreateRun": pb.CreateRunRequest(spec=RunSpec(request="x", inputs=[of_a])),
        "WatchRun": gateway_pb2.WatchRunRequest(run_id=run_id),
        "GetRun": gateway_pb2.GetRunRequest(run_id=run_id),
        "CancelRun": gateway_pb2.CancelRunRequest(run_id=run_id),
        "ApproveRun": gateway_pb2.ApproveRunRequest(run_id=run_id),
        "DeleteRun": gateway_pb2.DeleteRunRequest(run_id=run_id),
        "DownloadArtifact": pb.DownloadArtifactRequest(sha256=sha256),
        "GetRunRecord": GetRunRecordRequest(run_id=run_id),
        "GetPipeline": gateway_pb2.GetPipelineRequest(name="of-a"),
        "DeletePipeline": gateway_pb2.DeletePipelineRequest(name="of-a"),
        "CreateBatch": iter([gateway_pb2.CreateBatchRequest(spec=BatchSpec(pipeline=PipelineRef(name="of-a")))]),
        "GetBatch": gateway_pb2.GetBatchRequest(batch_id=batch_id),
        "ListBatchItems": gateway_pb2.ListBatchItemsRequest(batch_id=batch_id),
        "CancelBatch": gateway_pb2.CancelBatchRequest(batch_id=batch_id),
        "ResumeBatch": gateway_pb2.ResumeBatchRequest(batch_id=batch_id),
        "WatchBatch": gateway_pb2.WatchBatchRequest(batch_id=batch_id),
        "DeleteBatch": gateway_pb2.DeleteBatchRequest(batch_id=batch_id),
    }
    listed = {
        "ListRuns": gateway_pb2.ListRunsRequest(),
        "ListPipelines": gateway_pb2.ListPipelinesRequest(),
        "ListBatches": gateway_pb2.ListBatchesRequest(),
    }
    assert {"UploadArtifact", "ListTasks", "ListModels", "SavePipeline", *listed, *absent} == {
        method.name for method in pb.DESCRIPTOR.services_by_name["GatewayService"].methods
    }
    stub = tenant_objects.gateway.grpc
    for name, request in absent.items():
        error = await rpc_error(getattr(stub, name)(request, metadata=metadata(tenant_objects.b), timeout=10))
        assert error.code() is StatusCode.NOT_FOUND, name
    continued = pb.CreateRunRequest(spec=RunSpec(request="x", parent_run_id=run_id))
    assert (
        await rpc_error(stub.CreateRun(continued, metadata=metadata(tenant_objects.b), timeout=10))
    ).code() is StatusCode.NOT_FOUND
    for name, request in listed.items():
        assert not _data(await getattr(stub, name)(request, metadata=metadata(tenant_objects.b), timeout=10)), name
        assert _data(await getattr(stub, name)(request, metadata=metadata(tenant_objects.a), timeout=10)), name
    assert (await stub.GetRun(absent["GetRun"], metadata=metadata(tenant_objects.a), timeout=10)).run_id == run_id
    await stub.ListTasks(gateway_pb2.ListTasksRequest(), metadata=metadata(tenant_objects.b), timeout=10)


def _data(page: Any) -> Any:
    return page.ListFields() and page.ListFields()[0][1]


async def test_all_grpc_methods_require_a_key(tenant_objects: TenantObjects) -> None:
    stub = tenant_objects.gateway.grpc
    for method in pb.DESCRIPTOR.services_by_name["GatewayService"].methods:
        message = GetMessageClass(method.input_type)()
        request = iter([message]) if method.client_streaming else message
        error = await rpc_error(getattr(stub, method.name)(request, timeout=10))
        assert error.code() is StatusCode.UNAUTHENTICATED, method.name


async def test_all_routes_but_public_ones_require_a_key(tenant_objects: TenantObjects) -> None:
    granted = {"PUT /mcp/uploads/{secret}", "POST /mcp/uploads/{secret}"}
    public = {route for route in COMMON if " /v1/" not in route} | granted
    for route in tenant_objects.routes():
        method, path = route.split(" ")
        response = await tenant_objects.gateway.http.request(method, tenant_objects.filled(path))
        assert (response.status_code == 401) is (route not in public), route


async def test_deletions_are_audited(tenant_objects: TenantObjects) -> None:
    await tenant_objects.gateway.http.delete(
        tenant_objects.filled("/v1/runs/{run_id}"), headers=bearer(tenant_objects.a)
    )
    await tenant_objects.gateway.http.delete(
        tenant_objects.filled("/v1/files/{file_id}"), headers=bearer(tenant_objects.a)
    )
    await tenant_objects.gateway.http.delete("/v1/pipelines/of-a", headers=bearer(tenant_objects.a))
    await tenant_objects.gateway.http.delete(
        tenant_objects.filled("/v1/pipeline-batches/{batch_id}"), headers=bearer(tenant_objects.a)
    )
    acts = [
        (entry["tenant"], entry["action"], entry["subject"])
        async for entry in tenant_objects.keyed_gateway.audit.entries()
    ]
    assert ("a", "run.delete", tenant_objects.ids["run_id"]) in acts
    assert ("a", "file.delete", tenant_objects.ids["file_id"]) in acts
    assert ("a", "pipeline.save", "of-a") in acts
    assert ("a", "pipeline.delete", "of-a") in acts
    assert ("a", "batch.delete", tenant_objects.ids["batch_id"]) in acts

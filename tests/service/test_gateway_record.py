"""Records and verifications of runs driven by a real orchestrator."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from PIL import Image

from gateway.json_encoder import encode
from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.expert_pb2 import InferRequest
from protos.hugginggpt.v1.gateway_pb2 import GetRunRecordRequest
from protos.hugginggpt.v1.model_pb2 import ModelCard
from services.orchestrator.__main__ import orchestrator as serve_orchestrator
from services.orchestrator.settings import Settings
from tests.fakes import ScriptedSelector, card
from tests.support.api_keys import KeyedGateway, bearer, start_keyed_gateway
from tests.support.gateway import GatewayUnderTest
from tests.support.orchestrator import END, ScriptedPeers, task, text

TASKS = ("summarization", "text-classification", "canny-control", "image-to-image", "text-generation")


@dataclass
class Model:
    """A model whose answer the test sets, and that records its requests."""

    answer: Callable[[InferRequest], Awaitable[dict[str, Value]]]
    requests: list[InferRequest] = field(default_factory=list)

    async def __call__(self, request: InferRequest) -> dict[str, Value]:
        self.requests.append(request)
        return await self.answer(request)


@dataclass
class TenantGateway:
    """A gateway that requires API keys, with a real orchestrator."""

    peers: ScriptedPeers
    keyholders: KeyedGateway
    cards: list[ModelCard]
    token: str

    @property
    def gateway(self) -> GatewayUnderTest:
        return self.keyholders.gateway

    async def post(self, path: str, **sent: Any) -> Any:
        headers = {**bearer(self.token), "prefer": "wait=20"}
        return (await self.gateway.http.post(path, headers=headers, **sent)).json()

    async def get(self, path: str) -> Any:
        return (await self.gateway.http.get(path, headers=bearer(self.token))).json()

    async def ran(self, name: str, answer: Any, **arguments: Any) -> str:
        """Runs one task with this answer; returns the run's id."""
        self.answer(answer)
        plan = [{"id": 1, "task": name, "arguments": arguments or {"text": "hello"}}]
        run = await self.post("/v1/runs", json={"plan": plan, "mode": "results"})
        assert run["state"] == "completed", run
        return str(run["run_id"])

    def answer(self, outputs: Any) -> Model:
        async def constantly(_: InferRequest) -> dict[str, Value]:
            return outputs  # type: ignore[no-any-return]

        self.peers.infer["model"] = model = Model(outputs if callable(outputs) else constantly)
        return model

    async def verified(self, run_id: str) -> Any:
        """Result of the verification of a run."""
        started = await self.post(f"/v1/runs/{run_id}/verify")
        if started["ended"]:
            return started
        assert not started["verified"]
        again = started["again_run_id"]
        watched = await self.gateway.http.get(f"/v1/runs/{again}/events", headers=bearer(self.token))
        assert "run_ended" in watched.text
        return await self.get(f"/v1/runs/{run_id}/verifications/{again}")

    async def picture(self, level: int) -> Value:
        out = BytesIO()
        Image.new("L", (8, 8), level).save(out, "png")
        artifact = await self.gateway.store.put("a", out.getvalue(), media_type="image/png", name=f"{level}.png")
        return Value(artifact=artifact)


@pytest.fixture
async def tenant_gateway(peers: ScriptedPeers, settings: Settings, tmp_path: Path) -> AsyncIterator[TenantGateway]:
    peers.candidates[0].candidate.revision = "1"
    cards = [card("model", name, revision="1") for name in TASKS]
    selector = ScriptedSelector(cards=cards)
    async with serve_orchestrator(settings) as running:
        artifact = {"orchestrator": f"127.0.0.1:{running.port}", "ARTIFACTS_URL": settings.artifacts_url}
        async with start_keyed_gateway(tmp_path, artifact, selector=selector) as keyholders:
            yield TenantGateway(peers, keyholders, selector.cards, await keyholders.token("a"))


async def test_record_is_equal_over_http_and_grpc(tenant_gateway: TenantGateway) -> None:
    tenant_gateway.peers.plan(task(1, "summarization", text=text("a long secret")), END)
    run = await tenant_gateway.post("/v1/runs", json={"request": "Shorten the secret"})
    record = await tenant_gateway.get(f"/v1/runs/{run['run_id']}/record")
    Draft202012Validator(await tenant_gateway.get("/v1/schemas/record")).validate(record)
    by_call = await tenant_gateway.gateway.grpc.GetRunRecord(
        GetRunRecordRequest(run_id=run["run_id"]),
        metadata=(("authorization", f"Bearer {tenant_gateway.token}"),),
        timeout=10,
    )
    assert encode(by_call) == record
    key_id = tenant_gateway.token.split("_")[1]
    assert record["caller"]["tenant"] == "a"
    assert record["caller"]["key_id"] == key_id
    assert record["policy"] == "open"
    assert record["planning"][0]["controller"] == "embedded"
    (entry,) = record["tasks"]
    assert entry["model"] == {"model_id": "model", "revision": "1", "expert": "fake", "location": "internal"}
    assert entry["determinism"] == "numeric"
    assert entry["reused"] is False
    assert len(entry["attempts"]) == 1
    assert "secret" not in json.dumps(record)


async def test_reused_result_names_its_original_run(tenant_gateway: TenantGateway) -> None:
    summary = {"text": Value(text="short")}
    first, second = [await tenant_gateway.ran("summarization", summary) for _ in range(2)]
    (task,) = (await tenant_gateway.get(f"/v1/runs/{second}/record"))["tasks"]
    assert task["state"] == "reused"
    assert task["reused_from_run"] == first
    assert task["attempts"] == []


async def test_active_run_has_no_record(tenant_gateway: TenantGateway) -> None:
    tenant_gateway.peers.plan(task(1), END)
    run = await tenant_gateway.gateway.ask("x", mode="approve", headers=bearer(tenant_gateway.token))
    path = f"/v1/runs/{run.json()['run_id']}"
    problem = await tenant_gateway.get(f"{path}/record")
    assert problem["status"] == 409
    assert problem["code"] == "RUNNING"
    assert (await tenant_gateway.post(f"{path}/verify"))["code"] == "RUNNING"


async def test_equal_rerun_is_verified_without_result_cache(tenant_gateway: TenantGateway) -> None:
    run_id = await tenant_gateway.ran("text-classification", _labels(0.9))
    model = tenant_gateway.answer(_labels(0.9004))
    found = await tenant_gateway.verified(run_id)
    assert found["verified"] is True
    assert found["tasks"][0]["outcome"] == "same"
    assert found["tasks"][0]["findings"] == []
    assert len(model.requests) == 1
    record = await tenant_gateway.get(f"/v1/runs/{found['again_run_id']}/record")
    assert record["bypass_memo"] is True
    assert record["tasks"][0]["pinned"] is True


async def test_differences_are_reported_without_content(tenant_gateway: TenantGateway) -> None:
    run_id = await tenant_gateway.ran("text-classification", _labels(0.9))
    tenant_gateway.answer({"labels": Value(json='[{"label":"zebra","score":0.5}]'), "text": Value(text="zebra")})
    found = await tenant_gateway.verified(run_id)
    assert found["verified"] is False
    assert found["tasks"][0]["outcome"] == "different"
    assert found["tasks"][0]["findings"] == [
        "labels[0].label: different value",
        "labels[0].score: changed from 0.9 to 0.5; the tolerance is 0.001",
        "text: different text",
    ]


async def test_exact_tasks_are_compared_by_digest(tenant_gateway: TenantGateway) -> None:
    given = await tenant_gateway.picture(1)
    image = {"image": {"artifact": {"sha256": given.artifact.sha256}}}
    run_id = await tenant_gateway.ran("canny-control", {"image": await tenant_gateway.picture(7)}, **image)
    assert (await tenant_gateway.verified(run_id))["verified"]
    tenant_gateway.answer({"image": await tenant_gateway.picture(8)})
    assert (await tenant_gateway.verified(run_id))["tasks"][0]["findings"] == ["image: different bytes"]


async def test_rerun_uses_original_seeds_and_image_tolerance(tenant_gateway: TenantGateway) -> None:
    given = await tenant_gateway.picture(1)
    image = {"image": {"artifact": {"sha256": given.artifact.sha256}}, "prompt": "a sketch"}
    run_id = await tenant_gateway.ran("image-to-image", {"image": await tenant_gateway.picture(7)}, **image)
    seed = (await tenant_gateway.get(f"/v1/runs/{run_id}/record"))["tasks"][0]["seed"]
    model = tenant_gateway.answer({"image": await tenant_gateway.picture(8)})
    assert (await tenant_gateway.verified(run_id))["verified"]
    assert seed
    assert json.loads(model.requests[0].parameters_json)["seed"] == seed
    tenant_gateway.answer({"image": await tenant_gateway.picture(60)})
    (task,) = (await tenant_gateway.verified(run_id))["tasks"]
    assert task["findings"] == ["image: the images differ by 53.00 of 255 levels; the tolerance is 1"]


async def test_random_task_is_not_comparable(tenant_gateway: TenantGateway) -> None:
    run_id = await tenant_gateway.ran("text-generation", {"text": Value(text="once")}, prompt="Tell")
    found = await tenant_gateway.verified(run_id)
    assert found["verified"] is True
    assert found.get("again_run_id") is None
    assert found["tasks"][0]["findings"] == ["the task type is not deterministic"]


async def test_missing_model_or_commit_is_reported(tenant_gateway: TenantGateway) -> None:
    run_id = await tenant_gateway.ran("summarization", {"text": Value(text="short")})
    tenant_gateway.cards[:] = [card("model", "summarization", revision="2")]
    (task,) = (await tenant_gateway.verified(run_id))["tasks"]
    assert task["outcome"] == "gone"
    assert task["findings"] == ["commit 1 of model is no longer available; current: 2"]
    tenant_gateway.cards.clear()
    found = await tenant_gateway.verified(run_id)
    assert found["verified"] is False
    assert found["tasks"][0]["findings"] == ["model model is no longer available"]


async def test_missing_input_file_is_reported(tenant_gateway: TenantGateway) -> None:
    given = await tenant_gateway.picture(1)
    image = {"image": {"artifact": {"sha256": given.artifact.sha256}}}
    run_id = await tenant_gateway.ran("canny-control", {"image": await tenant_gateway.picture(7)}, **image)
    assert await tenant_gateway.gateway.store.discard("a", given.artifact.sha256, last_written_before=9e9)
    (task,) = (await tenant_gateway.verified(run_id))["tasks"]
    assert task["outcome"] == "gone"
    assert task["findings"] == ["the input file of port image no longer exists"]


async def test_failed_rerun_task_states_its_error(tenant_gateway: TenantGateway) -> None:
    async def broken(_: InferRequest) -> dict[str, Value]:
        return {"nonsense": Value(text="x")}

    run_id = await tenant_gateway.ran("summarization", {"text": Value(text="short")})
    tenant_gateway.answer(broken)
    found = await tenant_gateway.verified(run_id)
    assert found["verified"] is False
    assert found["tasks"][0]["outcome"] == "failed"


async def test_other_run_is_not_a_verification(tenant_gateway: TenantGateway) -> None:
    one, other = [await tenant_gateway.ran("summarization", {"text": Value(text="short")}) for _ in range(2)]
    again = (await tenant_gateway.post(f"/v1/runs/{one}/verify"))["again_run_id"]
    for run_id, claimed in ((one, other), (other, again)):
        task = await tenant_gateway.get(f"/v1/runs/{run_id}/verifications/{claimed}")
        assert task["status"] == 404
        assert task["code"] == "VERIFICATION"
    forged = await tenant_gateway.post("/v1/runs", json={"request": "x", "metadata": {"verification": "{}"}})
    assert forged["status"] == 400
    assert forged["error"]["param"] == "metadata"


def _labels(score: float) -> dict[str, Value]:
    labels = json.dumps([{"label": "joy", "score": score}])
    return {"labels": Value(json=labels), "text": Value(text=f"joy ({score:.2f})")}

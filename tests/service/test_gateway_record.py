"""Records and verifications of runs that a real orchestrator has driven."""

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
from services.orchestrator.__main__ import orchestrator
from services.orchestrator.settings import Settings
from tests.fakes import ScriptedSelector, card
from tests.support.api_keys import Keyholders, bearer, opened_keyholders
from tests.support.gateway import Doors
from tests.support.orchestrator import END, Cast, task, text

TASKS = ("summarization", "text-classification", "canny-control", "image-to-image", "text-generation")


@dataclass
class Model:
    """Answers with what the test says, and remembers what it was asked."""

    answer: Callable[[InferRequest], Awaitable[dict[str, Value]]]
    asked: list[InferRequest] = field(default_factory=list)

    async def __call__(self, request: InferRequest) -> dict[str, Value]:
        self.asked.append(request)
        return await self.answer(request)


@dataclass
class House:
    """A gateway with keys before an orchestrator."""

    cast: Cast
    keyholders: Keyholders
    cards: list[ModelCard]
    token: str

    @property
    def doors(self) -> Doors:
        return self.keyholders.doors

    async def post(self, path: str, **sent: Any) -> Any:
        headers = {**bearer(self.token), "prefer": "wait=20"}
        return (await self.doors.http.post(path, headers=headers, **sent)).json()

    async def get(self, path: str) -> Any:
        return (await self.doors.http.get(path, headers=bearer(self.token))).json()

    async def ran(self, name: str, answer: Any, **arguments: Any) -> str:
        """A run of one task, answered so."""
        self.answer(answer)
        plan = [{"id": 1, "task": name, "arguments": arguments or {"text": "hello"}}]
        run = await self.post("/v1/runs", json={"plan": plan, "mode": "results"})
        assert run["state"] == "completed", run
        return str(run["run_id"])

    def answer(self, outputs: Any) -> Model:
        async def constantly(_: InferRequest) -> dict[str, Value]:
            return outputs  # type: ignore[no-any-return]

        self.cast.infer["model"] = model = Model(outputs if callable(outputs) else constantly)
        return model

    async def verified(self, run_id: str) -> Any:
        """What came of doing a run again."""
        begun = await self.post(f"/v1/runs/{run_id}/verify")
        if begun["ended"]:
            return begun
        assert not begun["verified"]
        again = begun["again_run_id"]
        watched = await self.doors.http.get(f"/v1/runs/{again}/events", headers=bearer(self.token))
        assert "run_ended" in watched.text
        return await self.get(f"/v1/runs/{run_id}/verifications/{again}")

    async def picture(self, level: int) -> Value:
        out = BytesIO()
        Image.new("L", (8, 8), level).save(out, "png")
        kept = await self.doors.store.put("a", out.getvalue(), media_type="image/png", name=f"{level}.png")
        return Value(artifact=kept)


@pytest.fixture
async def house(cast: Cast, settings: Settings, tmp_path: Path) -> AsyncIterator[House]:
    cast.candidates[0].revision = "1"
    cards = [card("model", name, revision="1") for name in TASKS]
    selector = ScriptedSelector(cards=cards)
    async with orchestrator(settings) as running:
        kept = {"orchestrator": f"127.0.0.1:{running.port}", "ARTIFACTS_URL": settings.artifacts_url}
        async with opened_keyholders(tmp_path, kept, selector=selector) as keyholders:
            yield House(cast, keyholders, selector.cards, await keyholders.token("a"))


async def test_the_record_is_the_same_by_every_door_and_keeps_to_its_schema(house: House) -> None:
    house.cast.plan(task(1, "summarization", text=text("a long secret")), END)
    run = await house.post("/v1/runs", json={"request": "Shorten the secret"})
    record = await house.get(f"/v1/runs/{run['run_id']}/record")
    Draft202012Validator(await house.get("/v1/schemas/record")).validate(record)
    by_call = await house.doors.grpc.GetRunRecord(
        GetRunRecordRequest(run_id=run["run_id"]), metadata=(("authorization", f"Bearer {house.token}"),), timeout=10
    )
    assert encode(by_call) == record
    key_id = house.token.split("_")[1]
    assert (record["caller"]["tenant"], record["caller"]["key_id"]) == ("a", key_id)
    assert (record["policy"], record["planning"][0]["controller"]) == ("open", "embedded")
    (told,) = record["tasks"]
    assert told["model"] == {"model_id": "model", "revision": "1", "expert": "fake", "location": "internal"}
    assert (told["determinism"], told["reused"], len(told["attempts"])) == ("numeric", False, 1)
    assert "secret" not in json.dumps(record)


async def test_a_result_taken_from_an_earlier_run_leads_back_to_it(house: House) -> None:
    summary = {"text": Value(text="short")}
    first, second = [await house.ran("summarization", summary) for _ in range(2)]
    (told,) = (await house.get(f"/v1/runs/{second}/record"))["tasks"]
    assert (told["state"], told["reused_from_run"], told["attempts"]) == ("reused", first, [])


async def test_a_run_under_way_has_no_record_yet(house: House) -> None:
    house.cast.plan(task(1), END)
    run = await house.doors.ask("x", mode="approve", headers=bearer(house.token))
    path = f"/v1/runs/{run.json()['run_id']}"
    told = await house.get(f"{path}/record")
    assert (told["status"], told["code"]) == (409, "RUNNING")
    assert (await house.post(f"{path}/verify"))["code"] == "RUNNING"


async def test_the_same_is_verified_and_asked_of_the_model_anew(house: House) -> None:
    run_id = await house.ran("text-classification", _labels(0.9))
    model = house.answer(_labels(0.9004))
    found = await house.verified(run_id)
    assert (found["verified"], found["tasks"][0]["outcome"], found["tasks"][0]["findings"]) == (True, "same", [])
    assert len(model.asked) == 1
    record = await house.get(f"/v1/runs/{found['again_run_id']}/record")
    assert (record["bypass_memo"], record["tasks"][0]["pinned"]) == (True, True)


async def test_what_differs_is_named_without_its_words(house: House) -> None:
    run_id = await house.ran("text-classification", _labels(0.9))
    house.answer({"labels": Value(json='[{"label":"zebra","score":0.5}]'), "text": Value(text="zebra")})
    found = await house.verified(run_id)
    assert (found["verified"], found["tasks"][0]["outcome"]) == (False, "different")
    assert found["tasks"][0]["findings"] == [
        "labels[0].label: different value",
        "labels[0].score: changed from 0.9 to 0.5; the tolerance is 0.001",
        "text: different text",
    ]


async def test_what_has_to_be_the_same_to_the_byte_is_compared_by_digest(house: House) -> None:
    given = await house.picture(1)
    image = {"image": {"artifact": {"sha256": given.artifact.sha256}}}
    run_id = await house.ran("canny-control", {"image": await house.picture(7)}, **image)
    assert (await house.verified(run_id))["verified"]
    house.answer({"image": await house.picture(8)})
    assert (await house.verified(run_id))["tasks"][0]["findings"] == ["image: different bytes"]


async def test_pictures_may_differ_by_a_level_and_seeds_are_those_of_the_run(house: House) -> None:
    given = await house.picture(1)
    image = {"image": {"artifact": {"sha256": given.artifact.sha256}}, "prompt": "a sketch"}
    run_id = await house.ran("image-to-image", {"image": await house.picture(7)}, **image)
    seed = (await house.get(f"/v1/runs/{run_id}/record"))["tasks"][0]["seed"]
    model = house.answer({"image": await house.picture(8)})
    assert (await house.verified(run_id))["verified"]
    assert seed
    assert json.loads(model.asked[0].parameters_json)["seed"] == seed
    house.answer({"image": await house.picture(60)})
    (told,) = (await house.verified(run_id))["tasks"]
    assert told["findings"] == ["image: the pictures differ by 53.00 of 255 levels, where 1 is allowed"]


async def test_a_task_that_draws_at_random_is_not_comparable(house: House) -> None:
    run_id = await house.ran("text-generation", {"text": Value(text="once")}, prompt="Tell")
    found = await house.verified(run_id)
    assert (found["verified"], found.get("again_run_id")) == (True, None)
    assert found["tasks"][0]["findings"] == ["the task type is not deterministic"]


async def test_a_model_or_commit_that_is_gone_is_named(house: House) -> None:
    run_id = await house.ran("summarization", {"text": Value(text="short")})
    house.cards[:] = [card("model", "summarization", revision="2")]
    (told,) = (await house.verified(run_id))["tasks"]
    assert told["outcome"] == "gone"
    assert told["findings"] == ["commit 1 of model is no longer available; current: 2"]
    house.cards.clear()
    found = await house.verified(run_id)
    assert (found["verified"], found["tasks"][0]["findings"]) == (False, ["model model is no longer available"])


async def test_an_input_that_was_collected_is_said(house: House) -> None:
    given = await house.picture(1)
    image = {"image": {"artifact": {"sha256": given.artifact.sha256}}}
    run_id = await house.ran("canny-control", {"image": await house.picture(7)}, **image)
    assert await house.doors.store.discard("a", given.artifact.sha256, last_written_before=9e9)
    (told,) = (await house.verified(run_id))["tasks"]
    assert told["outcome"] == "gone"
    assert told["findings"] == ["the input file of port image no longer exists"]


async def test_a_task_that_fails_when_it_is_done_again_says_why(house: House) -> None:
    async def broken(_: InferRequest) -> dict[str, Value]:
        return {"nonsense": Value(text="x")}

    run_id = await house.ran("summarization", {"text": Value(text="short")})
    house.answer(broken)
    found = await house.verified(run_id)
    assert (found["verified"], found["tasks"][0]["outcome"]) == (False, "failed")


async def test_only_a_verification_is_taken_for_one(house: House) -> None:
    one, other = [await house.ran("summarization", {"text": Value(text="short")}) for _ in range(2)]
    again = (await house.post(f"/v1/runs/{one}/verify"))["again_run_id"]
    for run_id, claimed in ((one, other), (other, again)):
        told = await house.get(f"/v1/runs/{run_id}/verifications/{claimed}")
        assert (told["status"], told["code"]) == (404, "VERIFICATION")
    forged = await house.post("/v1/runs", json={"request": "x", "metadata": {"verification": "{}"}})
    assert (forged["status"], forged["error"]["param"]) == (400, "metadata")


def _labels(score: float) -> dict[str, Value]:
    labels = json.dumps([{"label": "joy", "score": score}])
    return {"labels": Value(json=labels), "text": Value(text=f"joy ({score:.2f})")}

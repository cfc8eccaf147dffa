import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import validate

from protos.hugginggpt.internal.v1 import selector_pb2
from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1 import gateway_pb2, task_pb2
from tests.fakes import ScriptedSelector, card
from tests.support.gateway import GatewayUnderTest, start_gateway


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[GatewayUnderTest]:
    selector = ScriptedSelector(
        tasks=[task_pb2.CatalogTask(spec=standard_tasks()["image-to-text"], experts=["lite"], dormant=True)],
        cards=[card("a/b", "image-to-text", "Reads."), card("c/d", "text-to-speech")],
        experts=[selector_pb2.Expert(name="lite", scales_to_zero=True, tasks=["image-to-text"])],
    )
    async with start_gateway(tmp_path, selector=selector) as opened:
        yield opened


async def test_tasks_are_listed_with_their_ports_and_experts(gateway: GatewayUnderTest) -> None:
    body = (await gateway.http.get("/v1/tasks")).json()
    assert body["object"] == "list"
    assert body["revision"] == "1"
    (task,) = body["data"]
    assert {"name", "description", "inputs", "outputs", "parameters", "examples", "experts", "dormant"} <= task.keys()
    assert task["name"] == "image-to-text"
    assert task["experts"] == ["lite"]
    assert task["dormant"] is True
    assert task["inputs"][0]["modality"] == "image"
    assert task["parameters"][0]["json_schema"]["type"] == "integer"


async def test_task_list_changes_only_with_the_catalogue(gateway: GatewayUnderTest) -> None:
    first = (await gateway.http.get("/v1/tasks")).json()
    gateway.selector.tasks.clear()
    assert (await gateway.http.get("/v1/tasks")).json() == first
    gateway.selector.revision = "2"
    assert (await gateway.http.get("/v1/tasks")).json()["data"] == []


async def test_models_lists_controllers_and_model_cards(gateway: GatewayUnderTest) -> None:
    body = (await gateway.http.get("/v1/models")).json()
    ours = {"object": "model", "created": 0, "owned_by": "hugginggpt"}
    assert body["data"] == [{"id": name, **ours} for name in ("hugginggpt", "hugginggpt-local")]
    assert [card["id"] for card in body["models"]] == ["a/b", "c/d"]
    assert body["models"][0]["state"] == "ready"
    one = (await gateway.http.get("/v1/models", params={"task": "text-to-speech"})).json()
    assert [card["id"] for card in one["models"]] == ["c/d"]
    page = (await gateway.http.get("/v1/models", params={"page_size": 1})).json()
    assert len(page["models"]) == 1
    assert page["next_page_token"] == "more"


async def test_experts_are_listed_and_removed(gateway: GatewayUnderTest) -> None:
    body = (await gateway.http.get("/v1/experts")).json()
    assert [(expert["name"], expert["scales_to_zero"]) for expert in body["data"]] == [("lite", True)]
    assert (await gateway.http.delete("/v1/experts/lite")).status_code == 204
    assert gateway.selector.forgotten == ["lite"]


async def test_grpc_catalogue_equals_http(gateway: GatewayUnderTest) -> None:
    tasks = await gateway.grpc.ListTasks(gateway_pb2.ListTasksRequest(), timeout=5)
    assert [task.spec.name for task in tasks.tasks] == ["image-to-text"]
    unchanged = await gateway.grpc.ListTasks(gateway_pb2.ListTasksRequest(known_revision="1"), timeout=5)
    assert unchanged.unchanged
    models = await gateway.grpc.ListModels(gateway_pb2.ListModelsRequest(task="text-to-speech"), timeout=5)
    assert [card.id for card in models.models] == ["c/d"]


async def test_health_and_readiness(gateway: GatewayUnderTest) -> None:
    for path in ("/healthz", "/readyz"):
        body = (await gateway.http.get(path)).json()
        assert body["status"] == "ok"
        assert body["service"] == "hugginggpt"
        assert body["version"]


def references(node: Any) -> set[str]:
    if isinstance(node, dict):
        own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
        return own.union(*map(references, node.values()))
    return set().union(*map(references, node)) if isinstance(node, list) else set()


async def test_openapi_document_is_valid_and_complete(gateway: GatewayUnderTest) -> None:
    described = (await gateway.http.get("/openapi.json")).json()
    validate(described)
    components = described["components"]
    for reference in references(described):
        kind, name = reference.removeprefix("#/components/").split("/")
        assert name in components[kind], reference
    operations = [each for path in described["paths"].values() for each in path.values()]
    assert len(operations) >= 14
    for operation in operations:
        assert operation["description"]
        assert {"4XX", "5XX"} <= operation["responses"].keys()
        errors = {status: error for status, error in operation["responses"].items() if status[0] in "45"}
        assert all("/Problem" in error["$ref"] for error in errors.values())


async def test_openapi_examples_match_their_schemas(gateway: GatewayUnderTest) -> None:
    described = (await gateway.http.get("/openapi.json")).json()
    operations = [each for path in described["paths"].values() for each in path.values()]
    bodies = [body for each in operations for body in (each.get("requestBody", {}), *each["responses"].values())]
    contents = [entry for body in bodies for entry in body.get("content", {}).items()]
    assert len(contents) >= 14
    for media_type, content in contents:
        shown = [content["example"]] if "example" in content else []
        shown += [each["value"] for each in content.get("examples", {}).values()]
        assert shown or media_type == "*/*"
        validator = OAS31Validator({**content["schema"], "components": described["components"]})
        for example in shown:
            validator.validate(_lines(example) if media_type == "application/x-ndjson" else example)


def _lines(example: str) -> list[Any]:
    """Parsed lines of a JSON lines example, as its schema describes them."""
    return [json.loads(line) for line in example.splitlines()]


async def test_responses_match_their_openapi_schemas(gateway: GatewayUnderTest) -> None:
    described = (await gateway.http.get("/openapi.json")).json()
    schemas = described["components"]["schemas"]
    run = (await gateway.ask(headers={"prefer": "wait=5"})).json()
    task = (await gateway.http.get("/v1/tasks")).json()["data"][0]
    model = (await gateway.http.get("/v1/models")).json()["models"][0]
    for name, sent in (("Run", run), ("RunSpec", run["spec"]), ("TaskSpec", task), ("ModelCard", model)):
        assert set(schemas[name]["required"]) <= sent.keys()
        assert sent.keys() - {"experts", "dormant"} <= schemas[name]["properties"].keys()


async def test_documentation_uses_no_external_resources(gateway: GatewayUnderTest) -> None:
    page = await gateway.http.get("/docs")
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert "://" not in page.text
    for path in ("/docs/start.js", "/docs/swagger-ui.css", "/docs/swagger-ui-bundle.js"):
        assert f'"{path}"' in page.text
        assert (await gateway.http.get(path)).status_code == 200

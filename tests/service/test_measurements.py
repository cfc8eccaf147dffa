"""Metrics of experts and of LLM clients, as Prometheus reads them."""

import re
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from protos.hugginggpt.internal.v1 import responder_pb2, responder_pb2_grpc
from protos.hugginggpt.v1 import expert_pb2, expert_pb2_grpc
from protos.hugginggpt.v1.artifact_pb2 import Value
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_OPEN, Caller
from protos.hugginggpt.v1.run_pb2 import Turn
from services.common.call_context import METADATA_KEY
from services.common.channel import dial
from services.local.ports import free_address
from tests.fakes import ScriptedLLM, TextReply
from tests.support.logs import logged
from tests.support.processes import processes

pytestmark = pytest.mark.slow

ANY = "127.0.0.1:0"
OPEN = ((METADATA_KEY, Caller(tenant="default", policy=DATA_POLICY_OPEN).SerializeToString()),)


async def measured(port: int, pattern: str) -> dict[str, float]:
    """Samples whose names match, by name and labels."""
    async with httpx.AsyncClient(trust_env=False) as client:
        text = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
    samples = [each for family in text_string_to_metric_families(text) for each in family.samples]
    return {
        " ".join([each.name, *(value for name, value in sorted(each.labels.items()) if name != "le")]): each.value
        for each in samples
        if re.search(pattern, each.name) and not each.name.endswith(("_bucket", "_created"))
    }


async def test_expert_counts_batches_loads_calls_and_memory(tmp_path: Path) -> None:
    settings = {"EXPERT_LISTEN": ANY, "METRICS_LISTEN": ANY, "ARTIFACTS_URL": tmp_path.as_uri()}
    async with processes(60) as start:
        process = await start("-m", "tests.support.uppercase_expert", **settings)
        metrics, port = [(await logged(process, event))["port"] for event in ("metrics", "serving")]
        async with dial(f"127.0.0.1:{port}") as channel:
            stub = expert_pb2_grpc.ExpertServiceStub(channel)
            for words in ("one", "two"):
                request = expert_pb2.InferRequest(
                    task="text-shouting", model="capitals", inputs={"text": Value(text=words)}
                )
                await stub.Infer(request, timeout=20, wait_for_ready=True)
        counted = await measured(metrics, "^expert_")
    assert counted["expert_batch_items_count capitals"] == 2
    assert counted["expert_batch_items_sum capitals"] == 2
    assert counted["expert_batch_duration_seconds_count capitals"] == 2
    assert counted["expert_model_load_duration_seconds_count capitals loaded"] == 1
    assert {counted[f"expert_calls capitals {state}"] for state in ("waiting", "running")} == {0}
    assert counted["expert_memory_bytes cpu models"] >= 0
    assert counted["expert_memory_bytes cpu budget"] > 0


async def test_llm_calls_are_counted_by_model_and_role() -> None:
    async with ScriptedLLM.serving([TextReply("It is done.")]) as server, processes(60) as start:
        settings = {
            "RESPONDER_LISTEN": ANY,
            "METRICS_LISTEN": ANY,
            "LLM_BASE_URL": server.base_url,
            "LLM_MODEL": "m",
            "LLM_PRICES": '{"m": {"input": 1000000, "output": 0}}',
        }
        process = await start("-m", "services.responder", **settings)
        metrics, port = [(await logged(process, event))["port"] for event in ("metrics", "serving")]
        async with dial(f"127.0.0.1:{port}") as channel:
            stub = responder_pb2_grpc.ResponderServiceStub(channel)
            request = responder_pb2.RespondRequest(conversation=[Turn(text="hello")])
            events = [event async for event in stub.Respond(request, timeout=20, wait_for_ready=True, metadata=OPEN)]
        counted = await measured(metrics, "^(gen_ai|llm)_")
    usage = events[-1].decision.usage
    assert usage.input_tokens
    assert counted == {
        "gen_ai_client_operation_duration_seconds_count chat m responder": 1,
        "gen_ai_client_operation_duration_seconds_sum chat m responder": pytest.approx(0, abs=10),
        "gen_ai_client_operation_time_to_first_chunk_seconds_count chat m responder": 1,
        "gen_ai_client_operation_time_to_first_chunk_seconds_sum chat m responder": pytest.approx(0, abs=10),
        "gen_ai_client_token_usage_count chat m input responder": 1,
        "gen_ai_client_token_usage_sum chat m input responder": usage.input_tokens,
        "gen_ai_client_token_usage_count chat m output responder": 1,
        "gen_ai_client_token_usage_sum chat m output responder": usage.output_tokens,
        "llm_cost_total chat m responder": pytest.approx(usage.cost),
    }


async def test_gateway_counts_requests_by_route_without_client_input(tmp_path: Path) -> None:
    settings = {
        "GATEWAY_LISTEN": ANY,
        "GATEWAY_HTTP_LISTEN": free_address(ANY, option=""),
        "GATEWAY_DATABASE": str(tmp_path / "gateway.sqlite"),
        "ARTIFACTS_URL": tmp_path.as_uri(),
        "METRICS_LISTEN": ANY,
    }
    async with processes(60) as start:
        process = await start("-m", "gateway", **settings)
        metrics = (await logged(process, "metrics"))["port"]
        await logged(process, "serving")
        base = f"http://{settings['GATEWAY_HTTP_LISTEN']}"
        async with httpx.AsyncClient(base_url=base, trust_env=False, timeout=30) as client:
            while not (await client.get("/openapi.json")).is_success:
                pass
            for number in range(20):
                await client.get(f"/secret-{number}")
                await client.get(f"/v1/files/file_{number}")
                await client.request("PROPFIND", "/v1/files")
        counted = await measured(metrics, "^http_.*_count$")
    of_clients = {name: count for name, count in counted.items() if "openapi" not in name}
    assert of_clients == {
        "http_server_request_duration_seconds_count GET 404 ": 20,
        "http_server_request_duration_seconds_count GET 404 /v1/files/{file_id}": 20,
        "http_server_request_duration_seconds_count _OTHER 405 /v1/files": 20,
    }

"""hugginggpt doctor with scripted LLM servers and the real client."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gateway.cli import app
from gateway.cli.llm_probe import offers
from tests.fakes import ErrorReply, RawReply, ScriptedLLM, ScriptedReply, TextReply
from tests.fakes.llm.doctor_answers import doctor_answer
from tests.support.scripted_gateway import ScriptedGateway

KEY = "sk-never-to-be-seen"


class Model:
    """Reply script of an LLM that passes the doctor's checks, with two optional defects.

    Args:
        repeats_nothing: it never repeats the word in the prompt, however short the prompt is.
        ignores_schema: it ignores the requested JSON schema.
    """

    def __init__(self, *, repeats_nothing: bool = False, ignores_schema: bool = False) -> None:
        self._repeats_nothing, self._ignores_schema = repeats_nothing, ignores_schema

    def __call__(self, body: Any) -> ScriptedReply:
        if self._ignores_schema:
            body.pop("response_format", None)
        answered = doctor_answer(body)
        assert answered
        return TextReply("I see no word." if self._repeats_nothing and "secret" in str(body) else answered)


@pytest.fixture(autouse=True)
def own_home(no_llm: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUGGINGGPT_HOME", str(tmp_path))
    for name in ("ARTIFACTS_URL", "HUGGINGGPT_URL"):
        monkeypatch.delenv(name, raising=False)


async def doctor(server: ScriptedLLM | None = None, **settings: str) -> dict[str, dict[str, str]]:
    """Findings about LLMs by check; asserts the exit status, and that no finding contains the API key."""
    own = {"LLM_BASE_URL": server.base_url, "LLM_MODEL": "scripted", "LLM_API_KEY": KEY} if server else {}
    environment: dict[str, str] = own | settings
    result = await asyncio.to_thread(CliRunner().invoke, app, ["doctor", "--json"], env=environment)
    assert KEY not in result.output
    checks = json.loads(result.stdout)["checks"]
    assert result.exit_code == int(any(check["level"] == "wrong" for check in checks))
    return {check["check"]: check for check in checks if check["check"].startswith("LLM")}


async def test_fully_capable_endpoint_passes_all_checks() -> None:
    async with ScriptedLLM.serving(Model()) as server:
        found = await doctor(server, LLM_CONTEXT_TOKENS="4096")
    assert {check: finding["level"] for check, finding in found.items()} == dict.fromkeys(
        ["LLM", "LLM streaming", "LLM schema", "LLM context", "LLM pictures", "LLM data", "LLM tokens"], "ok"
    )
    assert found["LLM"]["found"] == f"scripted answers at {server.base_url}"
    assert re.match(r"first token after \d+\.\d\d s, then \d+ tokens/s, in 12 chunks", found["LLM streaming"]["found"])
    assert found["LLM schema"]["found"] == "answers follow a JSON schema (LLM_JSON_SCHEMA=auto)"
    assert re.match(
        r"a prompt estimated at 3072 tokens arrives complete; the server counted \d{4}", found["LLM context"]["found"]
    )
    assert "--policy local nothing is sent" in found["LLM data"]["found"]
    assert re.match(r"3 requests used \d{4} prompt tokens and \d+ answer tokens", found["LLM tokens"]["found"])
    assert len(server.requests) == 3
    assert set(server.keys) == {f"Bearer {KEY}"}


async def test_shared_endpoint_is_checked_once() -> None:
    async with ScriptedLLM.serving(Model()) as server, ScriptedLLM.serving(Model()) as own:
        found = await doctor(
            server, PLANNER_LLM_BASE_URL=own.base_url, PLANNER_LLM_INTERNAL="true", RESPONDER_LLM_API_KEY=KEY
        )
    assert found["LLM of the planner"]["found"] == f"scripted answers at {own.base_url}"
    assert found["LLM of the selector, responder and expert"]["found"] == f"scripted answers at {server.base_url}"
    assert "part of the deployment" in found["LLM of the planner data"]["found"]
    assert "external: with" in found["LLM of the selector, responder and expert data"]["found"]
    assert len(server.requests) == 3
    assert len(own.requests) == 3


async def test_role_without_endpoint_reports_its_fallback() -> None:
    async with ScriptedLLM.serving(Model()) as server:
        found = await doctor(PLANNER_LLM_BASE_URL=server.base_url, PLANNER_LLM_MODEL="scripted")
    assert found["LLM of the planner"]["level"] == "ok"
    assert found["LLM of the responder"]["found"] == "not configured: answers are built from templates"


async def test_model_that_sees_names_the_colour_of_a_picture() -> None:
    async with ScriptedLLM.serving(Model()) as server:
        found = await doctor(server, LLM_VISION="true")
    assert found["LLM pictures"]["level"] == "ok"
    assert found["LLM pictures"]["found"].startswith("it sees")
    assert len(server.requests) == 4


async def test_model_that_does_not_see_fails_check_of_vision() -> None:
    def blind(body: Any) -> ScriptedReply:
        return TextReply("I see no picture.") if isinstance(body["messages"][0]["content"], list) else Model()(body)

    async with ScriptedLLM.serving(blind) as server:
        found = await doctor(server, LLM_VISION="true")
    assert found["LLM pictures"]["found"].startswith("it does not see")
    assert "LLM_VISION=false" in found["LLM pictures"]["remedy"]


async def test_refused_picture_fails_check_of_vision() -> None:
    def refusing(body: Any) -> ScriptedReply:
        return ErrorReply(400) if isinstance(body["messages"][0]["content"], list) else Model()(body)

    async with ScriptedLLM.serving(refusing) as server:
        found = await doctor(server, LLM_VISION="true")
    assert "a picture is not accepted" in found["LLM pictures"]["found"]


async def test_silently_truncated_context_is_reported_with_remedy() -> None:
    async with ScriptedLLM.serving(Model(), context=1500) as server:
        found = await doctor(server)
    assert found["LLM context"]["level"] == "wrong"
    assert "truncated silently: its first line is lost; the server counted 1500" in found["LLM context"]["found"]
    assert "OLLAMA_CONTEXT_LENGTH" in found["LLM context"]["remedy"]
    assert found["LLM context"]["remedy"].endswith("set LLM_CONTEXT_TOKENS to 1500")


async def test_context_passes_after_applying_remedy() -> None:
    async with ScriptedLLM.serving(Model(), context=1500) as server:
        found = await doctor(server, LLM_CONTEXT_TOKENS="1500")
    assert found["LLM context"]["level"] == "ok"


async def test_context_is_unknown_if_model_repeats_nothing() -> None:
    async with ScriptedLLM.serving(Model(repeats_nothing=True)) as server:
        found = await doctor(server)
    assert found["LLM context"]["level"] == "warning"
    assert "cannot check for truncation" in found["LLM context"]["found"]


async def test_prompt_rejected_for_length_fails_check() -> None:
    model, too_long = Model(), ErrorReply(400, body={"error": {"message": "maximum context length is 2048 tokens"}})
    async with ScriptedLLM.serving(lambda body: too_long if "ferry" in str(body) else model(body)) as server:
        found = await doctor(server)
    assert found["LLM context"]["level"] == "wrong"
    assert "too long" in found["LLM context"]["found"]
    assert "LLM_CONTEXT_TOKENS" in found["LLM context"]["remedy"]


@pytest.mark.parametrize(
    ("setting", "level", "message"),
    [("auto", "ok", "not supported"), ("on", "wrong", "not supported"), ("off", "ok", "not requested")],
)
async def test_missing_schema_support_fails_only_if_required(setting: str, level: str, message: str) -> None:
    async with ScriptedLLM.serving(Model(), schema=False) as server:
        found = await doctor(server, LLM_JSON_SCHEMA=setting)
    assert found["LLM schema"]["level"] == level
    assert message in found["LLM schema"]["found"]
    assert found["LLM context"]["level"] == "ok"


async def test_ignored_schema_is_a_warning() -> None:
    async with ScriptedLLM.serving(Model(ignores_schema=True)) as server:
        found = await doctor(server)
    assert found["LLM schema"]["level"] == "warning"
    assert "not followed" in found["LLM schema"]["found"]


async def test_unstreamed_answer_is_a_warning() -> None:
    model = Model()

    def at_once(body: Any) -> ScriptedReply:
        return TextReply("one two three", chunk=100) if "Count" in str(body) else model(body)

    async with ScriptedLLM.serving(at_once) as server:
        found = await doctor(server)
    assert found["LLM streaming"]["level"] == "warning"
    assert "is not streamed" in found["LLM streaming"]["found"]


async def test_priced_tokens_are_reported_with_cost() -> None:
    async with ScriptedLLM.serving(Model()) as server:
        found = await doctor(server, LLM_PRICES='{"scripted": {"input": 1000000, "output": 0}}')
    taken = re.search(r"used (\d+) prompt tokens", found["LLM tokens"]["found"])
    assert taken
    assert found["LLM tokens"]["found"].endswith(f"cost {taken[1]}.0000")


async def test_rejected_key_is_reported_without_the_key() -> None:
    async with ScriptedLLM.serving(lambda _: ErrorReply(401)) as server:
        found = await doctor(server)
    assert "refuses the key" in found["LLM"]["found"]
    assert found["LLM"]["remedy"] == "set LLM_API_KEY to a valid key"
    assert len(server.requests) == 1


async def test_unknown_model_suggests_similar_names() -> None:
    listed = ["qwen3:4b", "qwen3:8b", "llama3.2:latest"]
    async with ScriptedLLM.serving(lambda _: ErrorReply(404), models=listed) as server:
        found = await doctor(server, LLM_MODEL="qwen-3")
        unlike = await doctor(server, LLM_MODEL="zzz")
    assert found["LLM"]["found"] == f"{server.base_url} has no model qwen-3"
    assert found["LLM"]["remedy"].startswith("set LLM_MODEL to one of its models: qwen3:")
    assert "llama" not in found["LLM"]["remedy"]
    assert unlike["LLM"]["remedy"].endswith("qwen3:4b, qwen3:8b, llama3.2:latest")


async def test_unlisted_model_that_answers_passes() -> None:
    async with ScriptedLLM.serving(Model(), models=["other"]) as server:
        found = await doctor(server)
    assert found["LLM"]["level"] == "ok"
    assert found["LLM"]["found"].endswith("though the endpoint does not list it")


async def test_missing_v1_in_address_is_suggested() -> None:
    async with ScriptedLLM.serving(Model()) as server:
        found = await doctor(server, LLM_BASE_URL=server.base_url.removesuffix("/v1"))
    assert list(found) == ["LLM"]
    assert found["LLM"]["level"] == "wrong"
    assert found["LLM"]["remedy"] == f"set LLM_BASE_URL={server.base_url}"
    assert not server.requests


async def test_invalid_reply_fails_check() -> None:
    async with ScriptedLLM.serving(lambda _: RawReply(b"<html>")) as server:
        found = await doctor(server, LLM_RETRY_SECONDS="0.01")
    assert found["LLM"]["level"] == "wrong"
    assert "does not follow the chat completions" in found["LLM"]["found"]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://127.0.0.1:9/v1", "nothing listens at http://127.0.0.1:9/v1"),
        ("http://nowhere.invalid/v1", "the host nowhere.invalid of LLM_BASE_URL is unknown"),
        ("127.0.0.1:9/v1", "LLM_BASE_URL: is not a URL"),
    ],
)
async def test_unreachable_address_reports_cause(url: str, message: str) -> None:
    found = await doctor(LLM_BASE_URL=url, LLM_MODEL="m")
    assert all(finding["level"] == "wrong" and finding["remedy"] for finding in found.values())
    assert all(finding["found"].startswith(message) for finding in found.values())


async def test_server_without_tls_is_reported() -> None:
    async with ScriptedLLM.serving(Model()) as server:
        found = await doctor(server, LLM_BASE_URL=server.base_url.replace("http:", "https:"))
    assert found["LLM"]["found"].startswith("no TLS connection to https://")
    assert "http://" in found["LLM"]["remedy"]


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [("LLM_MODEL", "", "set LLM_MODEL"), ("LLM_PRICES", "x", "LLM_PRICES is not JSON"), ("LLM_CONCURRENCY", "0", "1")],
)
async def test_invalid_settings_are_reported(setting: str, value: str, message: str) -> None:
    settings = {"LLM_BASE_URL": "http://127.0.0.1:9/v1", "LLM_MODEL": "m", setting: value}
    found = await doctor(None, **settings)
    assert list(found) == [f"LLM of the {role}" for role in ("planner", "selector", "responder", "expert")]
    assert all(finding["level"] == "wrong" and message in finding["found"] for finding in found.values())


async def test_server_on_default_port_is_suggested_but_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ScriptedLLM.serving(Model(), models=["a", "b", "c", "d"]) as server:
        port = int(server.base_url.removesuffix("/v1").rpartition(":")[2])
        monkeypatch.setattr("gateway.cli.llm_probe.USUAL_PORTS", {port: "Ollama", 9: "vLLM"})
        found = await doctor()
    assert list(found) == ["LLM", "LLM offer"]
    assert "(default port of Ollama) offers a, b, c and 1 more; it is not used" in found["LLM offer"]["found"]
    expected = f"to use it: export LLM_BASE_URL={server.base_url} LLM_MODEL=a LLM_INTERNAL=true"
    assert found["LLM offer"]["remedy"] == expected
    assert not server.requests


def test_gateway_is_not_suggested_as_llm() -> None:
    listed = {"data": [{"id": "embedded"}]}
    with ScriptedGateway(pages={"/v1/models": listed}).running() as gateway:
        assert list(offers({int(gateway.url.rpartition(":")[2]): "llama.cpp"})) == []

"""The doctor before endpoints of LLMs: scripted servers, the real client."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gateway.cli import app
from gateway.cli.llm_endpoints import offers
from tests.fakes import Fails, Garbage, Says, ScriptedLLM, Turn
from tests.fakes.llm.doctor_answers import examined
from tests.support.scripted_gateway import ScriptedGateway

KEY = "sk-never-to-be-seen"


class Model:
    """Does what it is asked, mostly.

    Args:
        deaf: it repeats no word, however short the prompt.
        loose: it keeps to no schema.
    """

    def __init__(self, *, deaf: bool = False, loose: bool = False) -> None:
        self._deaf, self._loose = deaf, loose

    def __call__(self, body: Any) -> Turn:
        if self._loose:
            body.pop("response_format", None)
        said = examined(body)
        assert said
        return Says("I see no word." if self._deaf and "secret" in str(body) else said)


@pytest.fixture(autouse=True)
def own_home(no_llm: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUGGINGGPT_HOME", str(tmp_path))
    for name in ("ARTIFACTS_URL", "HUGGINGGPT_URL"):
        monkeypatch.delenv(name, raising=False)


async def doctor(server: ScriptedLLM | None = None, **settings: str) -> dict[str, dict[str, str]]:
    """What is found of LLMs, by check; a finding that is wrong makes the command fail, and none shows the key."""
    own = {"LLM_BASE_URL": server.base_url, "LLM_MODEL": "scripted", "LLM_API_KEY": KEY} if server else {}
    environment: dict[str, str] = own | settings
    result = await asyncio.to_thread(CliRunner().invoke, app, ["doctor", "--json"], env=environment)
    assert KEY not in result.output
    checks = json.loads(result.stdout)["checks"]
    assert result.exit_code == int(any(check["level"] == "wrong" for check in checks))
    return {check["check"]: check for check in checks if check["check"].startswith("LLM")}


async def test_an_endpoint_that_does_all_is_proved() -> None:
    async with ScriptedLLM.serving(Model()) as server:
        found = await doctor(server, LLM_CONTEXT_TOKENS="4096")
    assert {check: finding["level"] for check, finding in found.items()} == dict.fromkeys(
        ["LLM", "LLM streaming", "LLM schema", "LLM context", "LLM data", "LLM tokens"], "ok"
    )
    assert found["LLM"]["found"] == f"scripted answers at {server.base_url}"
    assert re.match(r"first token after \d+\.\d\d s, then \d+ tokens/s, in 12 pieces", found["LLM streaming"]["found"])
    assert found["LLM schema"]["found"] == "answers keep to a JSON schema (LLM_JSON_SCHEMA=auto)"
    assert re.match(
        r"a prompt estimated at 3072 tokens arrives whole; the server counted \d{4}", found["LLM context"]["found"]
    )
    assert "--policy local nothing is sent" in found["LLM data"]["found"]
    assert re.match(r"3 questions took \d{4} tokens of prompt and \d+ of answers", found["LLM tokens"]["found"])
    assert len(server.requests) == 3
    assert set(server.keys) == {f"Bearer {KEY}"}


async def test_roles_that_share_an_endpoint_have_it_proved_once_and_others_are_named() -> None:
    async with ScriptedLLM.serving(Model()) as server, ScriptedLLM.serving(Model()) as own:
        found = await doctor(
            server, PLANNER_LLM_BASE_URL=own.base_url, PLANNER_LLM_INTERNAL="true", RESPONDER_LLM_API_KEY=KEY
        )
    assert found["LLM of the planner"]["found"] == f"scripted answers at {own.base_url}"
    assert found["LLM of the selector and responder"]["found"] == f"scripted answers at {server.base_url}"
    assert "part of the house" in found["LLM of the planner data"]["found"]
    assert "outside the house" in found["LLM of the selector and responder data"]["found"]
    assert (len(server.requests), len(own.requests)) == (3, 3)


async def test_a_role_without_an_endpoint_says_what_is_done_instead() -> None:
    async with ScriptedLLM.serving(Model()) as server:
        found = await doctor(PLANNER_LLM_BASE_URL=server.base_url, PLANNER_LLM_MODEL="scripted")
    assert found["LLM of the planner"]["level"] == "ok"
    assert found["LLM of the responder"]["found"] == "none is configured: answers are composed from the results"


async def test_a_context_that_is_cut_silently_is_named_with_what_helps() -> None:
    async with ScriptedLLM.serving(Model(), context=1500) as server:
        found = await doctor(server)
    assert found["LLM context"]["level"] == "wrong"
    assert "cut silently: its first line does not come back; the server counted 1500" in found["LLM context"]["found"]
    assert "OLLAMA_CONTEXT_LENGTH" in found["LLM context"]["remedy"]
    assert found["LLM context"]["remedy"].endswith("set LLM_CONTEXT_TOKENS to 1500")


async def test_a_context_that_is_as_large_as_is_said_after_the_remedy_is_well() -> None:
    async with ScriptedLLM.serving(Model(), context=1500) as server:
        found = await doctor(server, LLM_CONTEXT_TOKENS="1500")
    assert found["LLM context"]["level"] == "ok"


async def test_a_model_that_repeats_nothing_tells_nothing_about_its_context() -> None:
    async with ScriptedLLM.serving(Model(deaf=True)) as server:
        found = await doctor(server)
    assert (found["LLM context"]["level"], "cannot be told" in found["LLM context"]["found"]) == ("warning", True)


async def test_a_prompt_that_is_refused_for_its_length_is_wrong() -> None:
    model, too_long = Model(), Fails(400, body={"error": {"message": "maximum context length is 2048 tokens"}})
    async with ScriptedLLM.serving(lambda body: too_long if "ferry" in str(body) else model(body)) as server:
        found = await doctor(server)
    assert found["LLM context"]["level"] == "wrong"
    assert "too long" in found["LLM context"]["found"]
    assert "LLM_CONTEXT_TOKENS" in found["LLM context"]["remedy"]


@pytest.mark.parametrize(
    ("setting", "level", "said"),
    [("auto", "ok", "not taken"), ("on", "wrong", "not taken"), ("off", "ok", "not asked for")],
)
async def test_a_server_without_schemas_is_wrong_only_where_they_are_insisted_on(
    setting: str, level: str, said: str
) -> None:
    async with ScriptedLLM.serving(Model(), schema=False) as server:
        found = await doctor(server, LLM_JSON_SCHEMA=setting)
    assert (found["LLM schema"]["level"], said in found["LLM schema"]["found"]) == (level, True)
    assert found["LLM context"]["level"] == "ok"


async def test_a_schema_that_is_taken_and_not_kept_to_is_a_warning() -> None:
    async with ScriptedLLM.serving(Model(loose=True)) as server:
        found = await doctor(server)
    assert (found["LLM schema"]["level"], "not kept to" in found["LLM schema"]["found"]) == ("warning", True)


async def test_an_answer_in_one_piece_is_no_stream() -> None:
    model = Model()

    def at_once(body: Any) -> Turn:
        return Says("one two three", chunk=100) if "Count" in str(body) else model(body)

    async with ScriptedLLM.serving(at_once) as server:
        found = await doctor(server)
    assert found["LLM streaming"]["level"] == "warning"
    assert "comes at once" in found["LLM streaming"]["found"]


async def test_tokens_that_have_a_price_are_told_with_their_cost() -> None:
    async with ScriptedLLM.serving(Model()) as server:
        found = await doctor(server, LLM_PRICES='{"scripted": {"input": 1000000, "output": 0}}')
    taken = re.search(r"took (\d+) tokens", found["LLM tokens"]["found"])
    assert taken
    assert found["LLM tokens"]["found"].endswith(f"which cost {taken[1]}.0000")


async def test_a_key_that_is_refused_is_said_without_the_key() -> None:
    async with ScriptedLLM.serving(lambda _: Fails(401)) as server:
        found = await doctor(server)
    assert "refuses the key" in found["LLM"]["found"]
    assert found["LLM"]["remedy"] == "set LLM_API_KEY to a key for it"
    assert len(server.requests) == 1


async def test_a_model_that_is_not_there_is_told_with_those_of_nearly_its_name() -> None:
    listed = ["qwen3:4b", "qwen3:8b", "llama3.2:latest"]
    async with ScriptedLLM.serving(lambda _: Fails(404), models=listed) as server:
        found = await doctor(server, LLM_MODEL="qwen-3")
        unlike = await doctor(server, LLM_MODEL="zzz")
    assert found["LLM"]["found"] == f"{server.base_url} has no model qwen-3"
    assert found["LLM"]["remedy"].startswith("set LLM_MODEL to one of its: qwen3:")
    assert "llama" not in found["LLM"]["remedy"]
    assert unlike["LLM"]["remedy"].endswith("qwen3:4b, qwen3:8b, llama3.2:latest")


async def test_a_model_that_answers_without_being_listed_is_well() -> None:
    async with ScriptedLLM.serving(Model(), models=["other"]) as server:
        found = await doctor(server)
    assert found["LLM"]["level"] == "ok"
    assert found["LLM"]["found"].endswith("though the endpoint does not list it")


async def test_an_address_that_lacks_its_end_is_completed() -> None:
    async with ScriptedLLM.serving(Model()) as server:
        found = await doctor(server, LLM_BASE_URL=server.base_url.removesuffix("/v1"))
    assert list(found) == ["LLM"]
    assert (found["LLM"]["level"], found["LLM"]["remedy"]) == ("wrong", f"set LLM_BASE_URL={server.base_url}")
    assert not server.requests


async def test_nonsense_is_said() -> None:
    async with ScriptedLLM.serving(lambda _: Garbage(b"<html>")) as server:
        found = await doctor(server, LLM_RETRY_SECONDS="0.01")
    assert (found["LLM"]["level"], "no form of the chat completions" in found["LLM"]["found"]) == ("wrong", True)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://127.0.0.1:9/v1", "nothing listens at http://127.0.0.1:9/v1"),
        ("http://nowhere.invalid/v1", "the host nowhere.invalid of LLM_BASE_URL is not known"),
        ("127.0.0.1:9/v1", "LLM_BASE_URL: is not a URL"),
    ],
)
async def test_an_address_where_nobody_is_tells_what_is_wrong_with_it(url: str, said: str) -> None:
    found = await doctor(LLM_BASE_URL=url, LLM_MODEL="m")
    assert all(finding["level"] == "wrong" and finding["remedy"] for finding in found.values())
    assert all(finding["found"].startswith(said) for finding in found.values())


async def test_a_server_without_tls_is_said_to_have_none() -> None:
    async with ScriptedLLM.serving(Model()) as server:
        found = await doctor(server, LLM_BASE_URL=server.base_url.replace("http:", "https:"))
    assert found["LLM"]["found"].startswith("no TLS connection to https://")
    assert "http://" in found["LLM"]["remedy"]


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [("LLM_MODEL", "", "set LLM_MODEL"), ("LLM_PRICES", "x", "LLM_PRICES is not JSON"), ("LLM_CONCURRENCY", "0", "1")],
)
async def test_settings_that_cannot_be_are_found(setting: str, value: str, said: str) -> None:
    settings = {"LLM_BASE_URL": "http://127.0.0.1:9/v1", "LLM_MODEL": "m", setting: value}
    found = await doctor(None, **settings)
    assert list(found) == ["LLM of the planner", "LLM of the selector", "LLM of the responder"]
    assert all(finding["level"] == "wrong" and said in finding["found"] for finding in found.values())


async def test_a_server_on_its_usual_port_is_offered_and_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ScriptedLLM.serving(Model(), models=["a", "b", "c", "d"]) as server:
        port = int(server.base_url.removesuffix("/v1").rpartition(":")[2])
        monkeypatch.setattr("gateway.cli.llm_endpoints.USUAL_PORTS", {port: "Ollama", 9: "vLLM"})
        found = await doctor()
    assert list(found) == ["LLM", "LLM offer"]
    assert "Ollama usually listens, with a, b, c and 1 more; it is not used" in found["LLM offer"]["found"]
    expected = f"to use it: export LLM_BASE_URL={server.base_url} LLM_MODEL=a LLM_INTERNAL=true"
    assert found["LLM offer"]["remedy"] == expected
    assert not server.requests


def test_a_gateway_of_ours_is_no_llm() -> None:
    listed = {"data": [{"id": "embedded"}]}
    with ScriptedGateway(pages={"/v1/models": listed}).running() as gateway:
        assert list(offers({int(gateway.url.rpartition(":")[2]): "llama.cpp"})) == []

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from protos.hugginggpt.v1.run_pb2 import RunSpec
from tests.support.gateway import GatewayUnderTest, start_gateway
from tests.support.web_server import Reply, Web, redirect, reply, web_server

PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(100)
LIMIT = 20_000


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    replies: dict[str, Reply] = {
        "/a%20b.png": reply(PICTURE, content_type="image/png"),
        "/picture.php": reply(PICTURE, content_type="image/png"),
        "/photo.jpg": reply(PICTURE, content_type="image/png"),
        "/silent": reply(PICTURE),
        "/table.csv": reply(b"a,b\n1,2\n", content_type="text/plain; charset=utf-8"),
        "/wrong.png": reply(b"<!doctype html><html>", content_type="image/png"),
        "/named.png": reply(b"<!doctype html><html>"),
        "/empty.txt": reply(b""),
        "/latin.txt": reply(b"caf\xe9", content_type="text/plain"),
        "/large": reply(bytes(LIMIT + 1)),
        "/half": reply(bytes(LIMIT // 2 + 1)),
        "/inside": redirect("http://169.254.169.254/latest/meta-data/"),
    }
    async with web_server(replies) as opened:
        yield opened


@pytest.fixture
async def gateway(tmp_path: Path, web: Web) -> AsyncIterator[GatewayUnderTest]:
    settings = {"fetch_allow": f"127.0.0.1:{web.port}", "files_bytes": LIMIT}
    async with start_gateway(tmp_path, settings=settings) as opened:
        yield opened


def inputs(web: Web, *paths: str) -> list[dict[str, Any]]:
    return [{"url": f"http://127.0.0.1:{web.port}{path}"} for path in paths]


def accepted(gateway: GatewayUnderTest) -> RunSpec:
    (run,) = gateway.orchestrator.runs.values()
    return run.spec


@pytest.mark.parametrize(
    ("path", "name", "media_type"),
    [
        ("/a%20b.png?size=large", "a b.png", "image/png"),
        ("/picture.php", "picture.php.png", "image/png"),
        ("/photo.jpg", "photo.png", "image/png"),
        ("/silent", "silent", "image/png"),
        ("/table.csv", "table.csv", "text/csv"),
    ],
)
async def test_url_input_becomes_an_artifact(
    gateway: GatewayUnderTest, web: Web, path: str, name: str, media_type: str
) -> None:
    response = await gateway.ask(inputs=[{"name": "it", **inputs(web, path)[0]}])
    assert response.status_code == 202, response.text
    (given,) = accepted(gateway).inputs
    assert given.name == "it"
    assert given.value.artifact.name == name
    assert given.value.artifact.media_type == media_type
    assert await gateway.store.get("default", given.value.artifact.sha256)


async def test_input_order_is_kept_with_urls_and_files(gateway: GatewayUnderTest, web: Web) -> None:
    (picture,) = inputs(web, "/silent")
    spec = f'{{"inputs": [{{"text": "a"}}, {{"url": "{picture["url"]}"}}]}}'
    files = {"file": ("b.txt", b"words", "text/plain")}
    response = await gateway.http.post("/v1/runs", data={"request": "do it", "spec": spec}, files=files)
    assert response.status_code == 202, response.text
    kinds = [named.value.WhichOneof("kind") for named in accepted(gateway).inputs]
    assert kinds == ["text", "artifact", "artifact"]


async def test_history_attachment_may_be_a_url(gateway: GatewayUnderTest, web: Web) -> None:
    history = [{"role": "user", "text": "look", "attachments": inputs(web, "/silent")}]
    response = await gateway.ask(history=history)
    assert response.status_code == 202, response.text
    (attachment,) = accepted(gateway).history[0].attachments
    assert attachment.value.artifact.media_type == "image/png"


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/wrong.png", "FILE_TYPE"),
        ("/named.png", "FILE_TYPE"),
        ("/empty.txt", "EMPTY_FILE"),
        ("/latin.txt", "NOT_UTF8"),
        ("/large", "TOO_LARGE"),
        ("/missing", "FETCH_FAILED"),
        ("/inside", "URL_ADDRESS"),
    ],
)
async def test_unfetchable_url_fails_before_the_run(gateway: GatewayUnderTest, web: Web, path: str, code: str) -> None:
    response = await gateway.ask(inputs=[{"text": "a"}, *inputs(web, path)])
    problem = response.json()
    assert problem["code"] == code
    assert problem["error"]["param"] == "inputs[1]"
    assert 400 <= response.status_code < 500
    assert not gateway.orchestrator.runs


async def test_urls_of_one_request_share_a_limit(gateway: GatewayUnderTest, web: Web) -> None:
    response = await gateway.ask(inputs=inputs(web, "/half", "/half"))
    assert response.status_code == 413
    assert response.json()["code"] == "TOO_LARGE"


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"url": "file:///etc/passwd"}, "URL"),
        ({"url": "http://localhost:22/"}, "URL_ADDRESS"),
        ({"url": "http://[::ffff:169.254.169.254]/"}, "URL_ADDRESS"),
        ({"url": "https://me:secret@example.org/"}, "URL"),
        ({"url": 7}, "INVALID"),
        ({"url": "https://example.org/", "text": "a"}, "INVALID"),
        ({"url": None}, "INVALID"),
    ],
    ids=str,
)
async def test_forbidden_url_is_a_problem(gateway: GatewayUnderTest, given: dict[str, Any], code: str) -> None:
    response = await gateway.ask(inputs=[given])
    assert response.json()["code"] == code
    assert response.json()["remedy"]
    assert "secret" not in response.text


async def test_invalid_request_fetches_nothing(gateway: GatewayUnderTest, web: Web) -> None:
    response = await gateway.ask(inputs=inputs(web, "/silent"), nonsense=1)
    assert response.json()["code"] == "UNKNOWN_FIELD"
    assert web.requests == []


async def test_disabled_fetching_is_reported(tmp_path: Path) -> None:
    async with start_gateway(tmp_path, settings={"fetch_urls": False}) as gateway:
        response = await gateway.ask(inputs=[{"url": "https://example.org/a.png"}])
    assert response.status_code == 403
    assert response.json()["code"] == "FETCHING_OFF"


async def test_form_file_with_wrong_content_type_is_rejected(gateway: GatewayUnderTest) -> None:
    files = {"file": ("picture", b"\x89PNG\r\n\x1a\n" + bytes(20), "application/pdf")}
    response = await gateway.http.post("/v1/runs", data={"request": "do it"}, files=files)
    assert response.status_code == 400
    assert response.json()["code"] == "FILE_TYPE"
    assert "application/pdf" in response.json()["detail"]


async def test_local_policy_fetches_from_deployment_hosts_only(gateway: GatewayUnderTest, web: Web) -> None:
    inside = await gateway.ask(policy="local", inputs=inputs(web, "/silent"))
    assert inside.status_code == 202, inside.text
    outside = await gateway.ask(policy="local", inputs=[{"text": "a"}, {"url": "https://example.org/a.png"}])
    problem = outside.json()
    assert outside.status_code == 403
    assert problem["code"] == "POLICY"
    assert problem["error"]["param"] == "inputs[1]"
    assert "upload the file" in problem["remedy"]
    web.replies["/out"] = redirect("https://example.org/a.png")
    led_out = await gateway.ask(policy="local", inputs=inputs(web, "/out"))
    assert led_out.json()["code"] == "POLICY"


async def test_local_controller_fetches_no_external_url(gateway: GatewayUnderTest) -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    chat_request = {"model": "hugginggpt-local", "messages": [{"role": "user", "content": [picture]}]}
    rejected = await gateway.http.post("/v1/chat/completions", json=chat_request)
    assert rejected.status_code == 403
    assert rejected.json()["code"] == "POLICY"

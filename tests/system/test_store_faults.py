"""A local stack whose S3 API is slow, breaks connections or is unavailable: runs wait or fail with the cause."""

import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.support.faulty_proxy import FaultyProxy, faulty_proxy
from tests.support.s3 import Bucket, create_bucket, credentials
from tests.system.conftest import ROOT, LocalStack, eventually, start_local_stack

pytestmark = pytest.mark.slow

SIGN = (ROOT / "tests" / "data" / "sign.png").read_bytes()
LARGE = SIGN + bytes(range(256)) * 4096 * 12
"""The image with 12 MiB appended, which decoders ignore: an upload of three parts."""

READING = {"id": 1, "task": "image-to-text", "arguments": {"image": {"input": "file1"}}}
SPEAKING = {"id": 2, "task": "text-to-speech", "arguments": {"text": {"task_id": 1, "output": "text"}}}
ALOUD = [READING, SPEAKING]
BREAKING_BYTES = 50_000
"""More bytes than any request to the store without a file has."""

SILENT_SECONDS = 25.0
"""Less than the timeout of the store's clients, and more than the test takes otherwise."""


@dataclass(frozen=True)
class StorageSetup:
    """A local stack, the faulty connection to its store, and the store."""

    local_stack: LocalStack
    connection: FaultyProxy
    bucket: Bucket
    http: httpx.Client

    def ask(self, content: bytes = SIGN, **spec: Any) -> httpx.Response:
        full_spec = {"plan": ALOUD, "mode": "results", "bypass_memo": True, **spec}
        parts: list[tuple[str, Any]] = [("spec", (None, json.dumps(full_spec))), ("file", ("sign.png", content))]
        return self.http.post("/v1/runs", files=parts)

    def events(self, run_id: str) -> Iterator[dict[str, Any]]:
        """Events of a run until it ends."""
        with self.http.stream("GET", f"/v1/runs/{run_id}/events") as reply:
            for line in reply.iter_lines():
                if line.startswith("data:"):
                    yield json.loads(line.removeprefix("data:"))

    def ended(self, run_id: str) -> dict[str, Any]:
        """Waits for a run to end and returns it."""
        for _ in self.events(run_id):
            pass
        run: dict[str, Any] = self.http.get(f"/v1/runs/{run_id}").json()
        return run

    def audio_of(self, run: dict[str, Any]) -> bytes:
        """The run's audio result, downloaded from the store itself."""
        assert run["state"] == "completed", run
        artifact = run["tasks"][1]["result"]["outputs"]["audio"]["artifact"]
        redirect = self.http.get(f"/v1/artifacts/{artifact['sha256']}")
        assert redirect.status_code == 307
        content = httpx.get(redirect.headers["location"], trust_env=False).content
        assert hashlib.sha256(content).hexdigest() == artifact["sha256"]
        return content


@pytest.fixture(scope="module")
def shared_storage(s3_endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StorageSetup]:
    bucket = create_bucket(s3_endpoint)
    with faulty_proxy(httpx.URL(s3_endpoint).port or 0) as connection:
        settings = {**credentials(connection.url), "ARTIFACTS_URL": bucket.url}
        with (
            start_local_stack(tmp_path_factory.mktemp("stack"), "--experts", "lite", **settings) as local_stack,
            httpx.Client(base_url=local_stack.url, timeout=90, trust_env=False) as http,
        ):
            yield StorageSetup(local_stack, connection, bucket, http)


@pytest.fixture
def storage(shared_storage: StorageSetup) -> Iterator[StorageSetup]:
    yield shared_storage
    shared_storage.connection.delay = 0.0
    shared_storage.connection.open()


def test_large_file_is_uploaded_in_parts(storage: StorageSetup) -> None:
    before = leftovers(storage.bucket)
    accepted = storage.ask(LARGE)
    assert accepted.status_code == 202, accepted.text
    run = storage.ended(accepted.json()["run_id"])
    assert storage.audio_of(run).startswith(b"RIFF")
    sent = run["spec"]["inputs"][0]["artifact"]
    assert sent["sha256"] == hashlib.sha256(LARGE).hexdigest()
    assert sent["size_bytes"] == len(LARGE)
    assert leftovers(storage.bucket) <= before


def test_slow_store_causes_no_retries(storage: StorageSetup) -> None:
    storage.connection.delay = 0.5
    run = storage.ended(storage.ask().json()["run_id"])
    assert storage.audio_of(run)
    assert not [task for task in run["tasks"] if task["result"]["attempt"] > 1]


def test_broken_upload_is_retried(storage: StorageSetup) -> None:
    before = leftovers(storage.bucket)
    storage.connection.break_after(count=3_000_000)
    accepted = storage.ask(LARGE)
    assert storage.connection.broken.is_set()
    assert accepted.status_code == 202, accepted.text
    assert storage.audio_of(storage.ended(accepted.json()["run_id"]))
    assert leftovers(storage.bucket) <= before


def test_store_failure_during_upload_is_reported_and_leaves_no_partial_file(storage: StorageSetup) -> None:
    other = LARGE + b"another"
    before, runs = storage.bucket.keys(), storage.http.get("/v1/runs").json()
    storage.connection.break_after(count=3_000_000, then_close=True)
    response = storage.ask(other)
    assert storage.connection.broken.is_set()
    assert_store_unavailable(response)
    storage.connection.open()
    assert storage.bucket.keys() == before
    assert storage.http.get("/v1/runs").json() == runs
    assert storage.ended(storage.ask(other).json()["run_id"])["state"] == "completed"


def test_uploads_and_downloads_fail_while_the_store_is_unavailable(storage: StorageSetup) -> None:
    run = storage.ended(storage.ask().json()["run_id"])
    sha256 = run["tasks"][1]["result"]["outputs"]["audio"]["artifact"]["sha256"]
    storage.connection.close()
    assert_store_unavailable(storage.ask(SIGN + b"new"))
    assert_store_unavailable(storage.http.get(f"/v1/artifacts/{sha256}"))
    assert storage.http.get(f"/v1/runs/{run['run_id']}").json() == run
    storage.connection.open()
    assert storage.audio_of(run)


def assert_store_unavailable(response: httpx.Response) -> None:
    problem = response.json()
    assert response.status_code == 503
    assert problem["code"] == "UNAVAILABLE"
    assert problem["detail"].startswith("the artifact store does not answer")
    assert "ARTIFACTS_URL" in problem["remedy"]
    assert "127.0.0.1" not in response.text


def leftovers(bucket: Bucket) -> set[str]:
    """Keys of unfinished uploads and of staged objects; an upload cannot be aborted while the store is away."""
    return {*bucket.unfinished(), *(key for key in bucket.keys() if "_staging" in key)}  # noqa: SIM118  # no dict


# ---------------------------------------------------------------- an active run


def run_awaiting_approval(storage: StorageSetup, **spec: Any) -> str:
    """Id of a run whose file is stored and whose plan awaits approval."""
    run_id: str = storage.ask(mode="approve", **spec).json()["run_id"]
    eventually(lambda: storage.http.get(f"/v1/runs/{run_id}").json()["state"] == "awaiting_approval")
    return run_id


def approve(storage: StorageSetup, run_id: str) -> None:
    storage.http.post(f"/v1/runs/{run_id}/approve", json={}).raise_for_status()


def test_run_retries_until_the_store_is_available(storage: StorageSetup) -> None:
    run_id = run_awaiting_approval(storage)
    storage.connection.close()
    approve(storage, run_id)
    for event in storage.events(run_id):
        if failed := event.get("attempt_failed"):
            assert failed["failure"]["message"].startswith("the artifact store does not answer")
            assert failed["next"] == "retry"
            storage.connection.open()
    run = storage.ended(run_id)
    assert storage.audio_of(run)
    assert run["tasks"][0]["result"]["attempt"] > 1


def test_run_fails_with_cause_if_the_store_stays_unavailable(storage: StorageSetup) -> None:
    run_id = run_awaiting_approval(storage, budget={"wall_time": 6})
    storage.connection.close()
    approve(storage, run_id)
    run = storage.ended(run_id)
    for failure in (run["failure"], run["tasks"][0]["result"]["failure"]):
        assert "the artifact store does not answer" in failure["message"], run
        assert failure["remedy"]
    assert run["state"] == "failed"


def test_run_blocked_by_a_silent_store_can_be_cancelled(storage: StorageSetup) -> None:
    run_id = run_awaiting_approval(storage)
    storage.connection.delay = SILENT_SECONDS
    approve(storage, run_id)
    began = time.monotonic()
    for event in storage.events(run_id):
        if "task_started" in event:
            storage.http.post(f"/v1/runs/{run_id}/cancel").raise_for_status()
    assert storage.ended(run_id)["state"] == "cancelled"
    assert time.monotonic() - began < SILENT_SECONDS


def test_broken_upload_of_a_result_is_retried(storage: StorageSetup) -> None:
    run_id = run_awaiting_approval(storage)
    storage.connection.break_after(count=BREAKING_BYTES)
    approve(storage, run_id)
    run = storage.ended(run_id)
    assert storage.connection.broken.is_set()
    assert storage.audio_of(run)


def test_corrupted_artifact_is_detected(storage: StorageSetup) -> None:
    run_id = run_awaiting_approval(storage)
    run = storage.http.get(f"/v1/runs/{run_id}").json()
    sha256 = run["spec"]["inputs"][0]["artifact"]["sha256"]
    storage.bucket.overwrite(f"default/{sha256}", SIGN[:-1] + b"x")
    approve(storage, run_id)
    failure = storage.ended(run_id)["tasks"][0]["result"]["failure"]
    assert failure["code"] == "DATA_LOSS"
    assert failure["reason"] == "CORRUPT"
    assert failure["port"] == "image"


def test_missing_bucket_is_reported_until_it_exists_again(storage: StorageSetup) -> None:
    storage.bucket.drop()
    response = storage.ask()
    assert response.status_code == 503
    assert response.json()["code"] == "UNAVAILABLE"
    assert response.json()["detail"] == "the artifact store's bucket does not exist"
    create_bucket(storage.bucket.endpoint, storage.bucket.name)
    assert storage.audio_of(storage.ended(storage.ask().json()["run_id"]))

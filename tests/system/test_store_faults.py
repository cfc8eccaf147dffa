"""A house on a real S3 API that is slow, breaks or is away: runs wait or say so, and nothing is corrupt."""

import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.support.faulty_channel import Strait, strait
from tests.support.s3 import Bucket, access, made
from tests.system.conftest import ROOT, LocalStack, eventually, start_local_stack

pytestmark = pytest.mark.slow

SIGN = (ROOT / "tests" / "data" / "sign.png").read_bytes()
LARGE = SIGN + bytes(range(256)) * 4096 * 12
"""12 MiB more, of which whoever opens the picture takes no notice: three parts."""

READING = {"id": 1, "task": "image-to-text", "arguments": {"image": {"input": "file1"}}}
SPEAKING = {"id": 2, "task": "text-to-speech", "arguments": {"text": {"task_id": 1, "output": "text"}}}
ALOUD = [READING, SPEAKING]
BREAKING_BYTES = 50_000
"""More than any request to the store but one that carries a file."""

SILENT_SECONDS = 25.0
"""Less than anybody waits for an answer of the store, and more than this takes otherwise."""


@dataclass(frozen=True)
class Shore:
    """A house, the way from it to its store, and the store behind."""

    local_stack: LocalStack
    way: Strait
    bucket: Bucket
    http: httpx.Client

    def ask(self, content: bytes = SIGN, **spec: Any) -> httpx.Response:
        told = {"plan": ALOUD, "mode": "results", "bypass_memo": True, **spec}
        parts: list[tuple[str, Any]] = [("spec", (None, json.dumps(told))), ("file", ("sign.png", content))]
        return self.http.post("/v1/runs", files=parts)

    def events(self, run_id: str) -> Iterator[dict[str, Any]]:
        """Of a run, until it ends."""
        with self.http.stream("GET", f"/v1/runs/{run_id}/events") as reply:
            for line in reply.iter_lines():
                if line.startswith("data:"):
                    yield json.loads(line.removeprefix("data:"))

    def ended(self, run_id: str) -> dict[str, Any]:
        """A run once it has."""
        for _ in self.events(run_id):
            pass
        run: dict[str, Any] = self.http.get(f"/v1/runs/{run_id}").json()
        return run

    def spoken(self, run: dict[str, Any]) -> bytes:
        """What the sign sounds like, as the store itself gives it out."""
        assert run["state"] == "completed", run
        artifact = run["tasks"][1]["result"]["outputs"]["audio"]["artifact"]
        redirect = self.http.get(f"/v1/artifacts/{artifact['sha256']}")
        assert redirect.status_code == 307
        content = httpx.get(redirect.headers["location"], trust_env=False).content
        assert hashlib.sha256(content).hexdigest() == artifact["sha256"]
        return content


@pytest.fixture(scope="module")
def standing_shore(s3_endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shore]:
    bucket = made(s3_endpoint)
    with strait(httpx.URL(s3_endpoint).port or 0) as way:
        settings = {**access(way.url), "ARTIFACTS_URL": bucket.url}
        with (
            start_local_stack(tmp_path_factory.mktemp("shore"), "--experts", "lite", **settings) as local_stack,
            httpx.Client(base_url=local_stack.url, timeout=90, trust_env=False) as http,
        ):
            yield Shore(local_stack, way, bucket, http)


@pytest.fixture
def shore(standing_shore: Shore) -> Iterator[Shore]:
    yield standing_shore
    standing_shore.way.delay = 0.0
    standing_shore.way.open()


def test_large_file_is_uploaded_in_parts(shore: Shore) -> None:
    before = leftovers(shore.bucket)
    accepted = shore.ask(LARGE)
    assert accepted.status_code == 202, accepted.text
    run = shore.ended(accepted.json()["run_id"])
    assert shore.spoken(run).startswith(b"RIFF")
    sent = run["spec"]["inputs"][0]["artifact"]
    assert sent["sha256"] == hashlib.sha256(LARGE).hexdigest()
    assert sent["size_bytes"] == len(LARGE)
    assert leftovers(shore.bucket) <= before


def test_slow_store_causes_no_retries(shore: Shore) -> None:
    shore.way.delay = 0.5
    run = shore.ended(shore.ask().json()["run_id"])
    assert shore.spoken(run)
    assert not [task for task in run["tasks"] if task["result"]["attempt"] > 1]


def test_broken_upload_is_retried(shore: Shore) -> None:
    before = leftovers(shore.bucket)
    shore.way.breaks(after=3_000_000)
    accepted = shore.ask(LARGE)
    assert shore.way.broken.is_set()
    assert accepted.status_code == 202, accepted.text
    assert shore.spoken(shore.ended(accepted.json()["run_id"]))
    assert leftovers(shore.bucket) <= before


def test_store_failure_during_upload_is_reported_and_leaves_no_partial_file(shore: Shore) -> None:
    other = LARGE + b"another"
    before, runs = shore.bucket.keys(), shore.http.get("/v1/runs").json()
    shore.way.breaks(after=3_000_000, closes=True)
    refused = shore.ask(other)
    assert shore.way.broken.is_set()
    assert_away(refused)
    shore.way.open()
    assert shore.bucket.keys() == before
    assert shore.http.get("/v1/runs").json() == runs
    assert shore.ended(shore.ask(other).json()["run_id"])["state"] == "completed"


def test_uploads_and_downloads_fail_while_the_store_is_unavailable(shore: Shore) -> None:
    run = shore.ended(shore.ask().json()["run_id"])
    sha256 = run["tasks"][1]["result"]["outputs"]["audio"]["artifact"]["sha256"]
    shore.way.close()
    assert_away(shore.ask(SIGN + b"new"))
    assert_away(shore.http.get(f"/v1/artifacts/{sha256}"))
    assert shore.http.get(f"/v1/runs/{run['run_id']}").json() == run
    shore.way.open()
    assert shore.spoken(run)


def assert_away(answer: httpx.Response) -> None:
    told = answer.json()
    assert answer.status_code == 503
    assert told["code"] == "UNAVAILABLE"
    assert told["detail"].startswith("the artifact store does not answer")
    assert "ARTIFACTS_URL" in told["remedy"]
    assert "127.0.0.1" not in answer.text


def leftovers(bucket: Bucket) -> set[str]:
    """Keys of unfinished uploads and of staged objects; an upload cannot be aborted while the store is away."""
    return {*bucket.unfinished(), *(key for key in bucket.keys() if "_staging" in key)}  # noqa: SIM118  # no dict


# ---------------------------------------------------------------- a run under way


def waiting(shore: Shore, **spec: Any) -> str:
    """A run whose file is in the store and whose plan may yet run."""
    run_id: str = shore.ask(mode="approve", **spec).json()["run_id"]
    eventually(lambda: shore.http.get(f"/v1/runs/{run_id}").json()["state"] == "awaiting_approval")
    return run_id


def approve(shore: Shore, run_id: str) -> None:
    shore.http.post(f"/v1/runs/{run_id}/approve", json={}).raise_for_status()


def test_run_retries_until_the_store_is_available(shore: Shore) -> None:
    run_id = waiting(shore)
    shore.way.close()
    approve(shore, run_id)
    for event in shore.events(run_id):
        if failed := event.get("attempt_failed"):
            assert failed["failure"]["message"].startswith("the artifact store does not answer")
            assert failed["next"] == "retry"
            shore.way.open()
    run = shore.ended(run_id)
    assert shore.spoken(run)
    assert run["tasks"][0]["result"]["attempt"] > 1


def test_run_fails_with_cause_if_the_store_stays_unavailable(shore: Shore) -> None:
    run_id = waiting(shore, budget={"wall_time": 6})
    shore.way.close()
    approve(shore, run_id)
    run = shore.ended(run_id)
    for told in (run["failure"], run["tasks"][0]["result"]["failure"]):
        assert "the artifact store does not answer" in told["message"], run
        assert told["remedy"]
    assert run["state"] == "failed"


def test_run_blocked_by_a_silent_store_can_be_cancelled(shore: Shore) -> None:
    run_id = waiting(shore)
    shore.way.delay = SILENT_SECONDS
    approve(shore, run_id)
    began = time.monotonic()
    for event in shore.events(run_id):
        if "task_started" in event:
            shore.http.post(f"/v1/runs/{run_id}/cancel").raise_for_status()
    assert shore.ended(run_id)["state"] == "cancelled"
    assert time.monotonic() - began < SILENT_SECONDS


def test_broken_upload_of_a_result_is_retried(shore: Shore) -> None:
    run_id = waiting(shore)
    shore.way.breaks(after=BREAKING_BYTES)
    approve(shore, run_id)
    run = shore.ended(run_id)
    assert shore.way.broken.is_set()
    assert shore.spoken(run)


def test_corrupted_artifact_is_detected(shore: Shore) -> None:
    run_id = waiting(shore)
    run = shore.http.get(f"/v1/runs/{run_id}").json()
    sha256 = run["spec"]["inputs"][0]["artifact"]["sha256"]
    shore.bucket.overwrite(f"default/{sha256}", SIGN[:-1] + b"x")
    approve(shore, run_id)
    failure = shore.ended(run_id)["tasks"][0]["result"]["failure"]
    assert failure["code"] == "DATA_LOSS"
    assert failure["reason"] == "CORRUPT"
    assert failure["port"] == "image"


def test_missing_bucket_is_reported_until_it_exists_again(shore: Shore) -> None:
    shore.bucket.drop()
    refused = shore.ask()
    assert refused.status_code == 503
    assert refused.json()["code"] == "UNAVAILABLE"
    assert refused.json()["detail"] == "the artifact store's bucket does not exist"
    made(shore.bucket.endpoint, shore.bucket.name)
    assert shore.spoken(shore.ended(shore.ask().json()["run_id"]))

"""S3 API on loopback, with buckets that tests create and inspect."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from uuid import uuid4

import httpx
import obstore
import pytest
from obstore.store import ObjectStore, from_url

FIRST_SECONDS = 60.0
"""Seconds for the first response, which loads the server's modules."""

_RUNNING = re.compile(r"http://127\.0\.0\.1:\d+")


@dataclass(frozen=True)
class Bucket:
    """A bucket of one test."""

    endpoint: str
    name: str

    @property
    def url(self) -> str:
        return f"s3://{self.name}/some/prefix"

    def keys(self) -> set[str]:
        """Keys of all objects, without the prefix."""
        listing = httpx.get(f"{self.endpoint}/{self.name}?list-type=2", trust_env=False).text
        return {key.removeprefix("some/prefix/") for key in re.findall("<Key>(.*?)</Key>", listing)}

    def unfinished(self) -> list[str]:
        """Keys of unfinished multipart uploads."""
        listing = httpx.get(f"{self.endpoint}/{self.name}?uploads", trust_env=False).text
        return re.findall("<Key>(.*?)</Key>", listing)

    def overwrite(self, key: str, content: bytes) -> None:
        obstore.put(self._store(), key, content)

    def remove(self, key: str) -> None:
        obstore.delete(self._store(), key)

    def drop(self) -> None:
        """Removes the bucket and its objects, also those that a service writes meanwhile."""
        while True:
            for key in self.keys():
                self.remove(key)
            response = httpx.delete(f"{self.endpoint}/{self.name}", trust_env=False)
            if response.status_code != HTTPStatus.CONFLICT:
                response.raise_for_status()
                return

    def _store(self) -> ObjectStore:
        return from_url(
            self.url,
            endpoint=self.endpoint,
            access_key_id="test",
            secret_access_key="test",
            region="us-east-1",
            client_options={"allow_http": True},
        )


@contextmanager
def serving_s3() -> Iterator[str]:
    """Runs the server in a separate process and yields its endpoint."""
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr
        try:
            url_match = next(url_match for line in server.stderr if (url_match := _RUNNING.search(line)))
            draining = threading.Thread(target=server.stderr.read)
            draining.start()
            httpx.get(url_match[0], timeout=FIRST_SECONDS, trust_env=False)
            yield url_match[0]
        finally:
            server.terminate()
            draining.join()


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    with serving_s3() as endpoint:
        yield endpoint


@pytest.fixture
def bucket(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """An empty bucket; sets this process's credentials for it."""
    bucket = create_bucket(s3_endpoint)
    for variable, value in credentials(s3_endpoint).items():
        monkeypatch.setenv(variable, value)
    return bucket


def create_bucket(endpoint: str, name: str = "") -> Bucket:
    """Creates an empty bucket."""
    bucket = Bucket(endpoint, name or f"bucket-{uuid4().hex[:12]}")
    httpx.put(f"{endpoint}/{bucket.name}", trust_env=False).raise_for_status()
    return bucket


def credentials(endpoint: str) -> dict[str, str]:
    """Environment variables with which obstore finds a server."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }

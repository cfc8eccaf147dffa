"""Models of a bucket: fetched by --prefetch, then loaded from a read-only cache."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from experts.host.expert import read_expert
from experts.torch_host.sources import fetch_snapshot
from services.common.errors import FailedPrecondition
from tests.support.s3 import Bucket
from tests.tiny import TinyModels

pytestmark = pytest.mark.slow

NAMES, OTHER = "dslim/bert-base-NER", "google-bert/bert-base-uncased"
UNWRITABLE = Path("/sys/models")
"""A folder that even root cannot create."""


@pytest.fixture
def bucket_with_model(
    bucket: Bucket, tiny_models: TinyModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Bucket:
    """A bucket with one model; this process has an empty cache and may fetch."""
    folder = tiny_models.build("text", "tiny/tagger")
    for path in folder.rglob("*"):
        if path.is_file():
            bucket.overwrite(f"{NAMES}/{path.relative_to(folder).as_posix()}", path.read_bytes())
    monkeypatch.setenv("EXPERT_MODELS_URL", bucket.url)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return bucket


@pytest.fixture
def deleted_bucket(bucket_with_model: Bucket, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A bucket that was deleted after its model was fetched; this process is offline."""
    fetch_snapshot(NAMES)
    bucket_with_model.drop()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return bucket_with_model


def load_error(model_id: str = NAMES) -> FailedPrecondition:
    with pytest.raises(FailedPrecondition) as caught:
        fetch_snapshot(model_id)
    assert caught.value.reason == "LOAD_FAILED"
    assert "\n" not in caught.value.message
    return caught.value


async def prefetch(folder: Path, **settings: str) -> tuple[int, list[dict[str, str]]]:
    """Returns the exit status and the log of the program."""
    environment = {**os.environ, "HF_HOME": str(folder), "HF_HUB_OFFLINE": "0", **settings}
    command = (sys.executable, "-m", "experts.text", "--prefetch")
    process = await asyncio.create_subprocess_exec(*command, stderr=PIPE, env=environment)
    _, log = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    return process.returncode, [json.loads(line) for line in log.splitlines()]


@pytest.mark.usefixtures("deleted_bucket")
def test_offline_model_is_loaded_from_the_cache(tmp_path: Path) -> None:
    assert fetch_snapshot(NAMES).folder == tmp_path / "bucket" / NAMES


@pytest.mark.usefixtures("deleted_bucket")
def test_offline_model_not_in_the_cache_is_an_error() -> None:
    error = load_error(OTHER)
    assert f"{OTHER} is not on this machine, and HF_HUB_OFFLINE is set" in error.message
    assert "--prefetch" in error.remedy


@pytest.mark.parametrize("left", ["", ".partial"])
def test_offline_incomplete_download_is_not_used(deleted_bucket: Bucket, tmp_path: Path, left: str) -> None:
    weights = tmp_path / "bucket" / NAMES / "model.safetensors"
    if left:
        weights.with_name(weights.name + left).write_bytes(b"")
    else:
        weights.unlink()
    assert "is not on this machine" in load_error().message
    assert deleted_bucket.keys() == set()


def test_offline_newer_object_is_not_fetched(bucket_with_model: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = fetch_snapshot(NAMES).folder / "model.safetensors"
    before = weights.read_bytes()
    bucket_with_model.overwrite(f"{NAMES}/model.safetensors", b"newer")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    fetch_snapshot(NAMES)
    assert weights.read_bytes() == before


@pytest.mark.usefixtures("bucket_with_model")
def test_unwritable_cache_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(UNWRITABLE))
    error = load_error()
    assert f"cannot write {NAMES} to the cache" in error.message
    assert "HF_HOME" in error.remedy


@pytest.mark.usefixtures("bucket_with_model")
def test_full_disk_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / "bucket" / NAMES
    folder.mkdir(parents=True)
    (folder / "model.safetensors.partial").symlink_to("/dev/full")
    assert "to the cache: No space left on device" in load_error().message


def test_missing_bucket_is_not_reported_as_a_full_disk(bucket_with_model: Bucket) -> None:
    bucket_with_model.drop()
    assert f"from {bucket_with_model.url}" in load_error().message


@pytest.mark.usefixtures("bucket_with_model")
async def test_prefetch_logs_each_model_that_cannot_be_stored() -> None:
    cards = [read_expert("experts.text").find("token-classification", NAMES).card.id, OTHER]
    unreachable_hub = {"HF_ENDPOINT": "http://127.0.0.1:9"}
    status, log = await prefetch(UNWRITABLE, EXPERT_ALLOWED=",".join(cards), **unreachable_hub)
    errors = [line for line in log if line["level"] == "error"]
    assert status == 1
    assert sorted({line["model"] for line in errors}) == sorted(cards)
    assert all(line["event"] == "model not fetched" and line["remedy"] for line in errors)


@pytest.mark.usefixtures("bucket_with_model")
async def test_prefetch_of_cached_models_needs_no_bucket(tmp_path: Path) -> None:
    allowed = {"EXPERT_ALLOWED": NAMES}
    assert (await prefetch(tmp_path, **allowed))[0] == 0
    offline = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "1"}
    status, log = await prefetch(tmp_path, **allowed, **offline)
    assert status == 0
    assert [line["model"] for line in log if line["event"] == "model fetched"] == [NAMES]

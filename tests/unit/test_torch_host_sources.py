"""Sources of models, and errors when a model is missing."""

import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from obstore.exceptions import UnknownConfigurationKeyError
from obstore.store import MemoryStore
from structlog.testing import capture_logs
from tenacity import wait_none

from experts.host import load_context
from experts.torch_host.devices import TorchDevices
from experts.torch_host.file_selection import METADATA, select_files
from experts.torch_host.sources import fetch_snapshot
from services.common.errors import FailedPrecondition
from tests.fakes.hub import Hub, Repository, running_hub

FILES: Mapping[str, bytes] = {
    "config.json": b"{}",
    "tokenizer.json": b"{}",
    "model.safetensors": b"w" * 3_000_000,
    "pytorch_model.bin": b"pickle",
    "modeling_own.py": b"import os",
    "README.md": b"# model",
}
NEEDED = {"config.json", "tokenizer.json", "model.safetensors"}
MODEL = "org/name"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with running_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        monkeypatch.setattr("experts.torch_host.hub._request_model_info.retry.wait", wait_none())
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "token"))
        for name in ("EXPERT_MODELS_URL", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        yield hub


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def refusal(model_id: str = MODEL, revision: str = "") -> FailedPrecondition:
    with pytest.raises(FailedPrecondition) as caught:
        fetch_snapshot(model_id, revision)
    assert caught.value.reason == "LOAD_FAILED"
    assert caught.value.remedy
    return caught.value


def test_only_data_and_safetensors_are_fetched_at_the_main_commit(hub: Hub) -> None:
    hub.repositories[MODEL] = Repository(FILES)
    found = fetch_snapshot(MODEL)
    assert names(found.folder) == NEEDED
    assert found.commit == "1" * 40


def test_commit_of_the_card_is_fetched(hub: Hub) -> None:
    hub.repositories[MODEL] = Repository({}, offers={"anybody": FILES})
    assert fetch_snapshot(MODEL, "2" * 40).commit == "2" * 40


def test_cached_commit_is_not_fetched_again(hub: Hub) -> None:
    hub.repositories[MODEL] = Repository(FILES)
    fetch_snapshot(MODEL, "1" * 40)
    hub.requested_paths.clear()
    assert names(fetch_snapshot(MODEL, "1" * 40).folder) == NEEDED
    assert hub.requested_paths == []


def test_last_cached_commit_is_used_without_a_network(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.repositories[MODEL] = Repository(FILES)
    fetch_snapshot(MODEL)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert fetch_snapshot(MODEL).commit == "1" * 40


def test_cached_commit_is_known_without_a_request(hub: Hub) -> None:
    hub.repositories[MODEL] = Repository(FILES)
    assert TorchDevices().commit(MODEL) == ""
    fetch_snapshot(MODEL)
    hub.requested_paths.clear()
    assert TorchDevices().commit(MODEL) == "1" * 40
    assert hub.requested_paths == []


def test_download_reports_progress(hub: Hub) -> None:
    hub.repositories[MODEL] = Repository(FILES)
    steps: list[tuple[float, str]] = []
    with load_context.use(load_context.LoadContext(progress=lambda *step: steps.append(step))), capture_logs() as logs:
        fetch_snapshot(MODEL)
    assert steps[0] == (0, f"requesting the model from {hub.endpoint}")
    assert steps[-1][0] == pytest.approx(1, abs=0.01)
    assert steps[-1][1] == "downloading the model: 3 of 3 MB"
    assert [step for step, _ in steps] == sorted(step for step, _ in steps)
    assert [entry["event"] for entry in logs] == ["requesting the model", "downloaded"]
    assert logs[-1]["megabytes"] == 3


def test_offline_error_names_the_setting(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    error = refusal()
    assert "HF_HUB_OFFLINE" in error.message
    assert "EXPERT_MODELS_URL" in error.remedy


def test_unreachable_hub_is_named(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    error = refusal()
    assert "http://127.0.0.1:9 cannot be reached" in error.message


@pytest.mark.parametrize("revision", ["", "1" * 40])
def test_silent_hub_times_out(hub: Hub, monkeypatch: pytest.MonkeyPatch, revision: str) -> None:
    monkeypatch.setattr("experts.torch_host.hub.ANSWER_SECONDS", 0.2)
    steps: list[str] = []
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        load_context.use(load_context.LoadContext(progress=lambda _, message: steps.append(message))),
        capture_logs() as logs,
    ):
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        error = refusal(revision=revision)
    assert f"{endpoint} cannot be reached" in error.message
    assert steps == [f"requesting the model from {endpoint}"]
    assert [(entry["event"], entry["model"], entry["at"]) for entry in logs] == [
        ("requesting the model", MODEL, endpoint)
    ]


def test_last_cached_commit_is_used_without_an_answer(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.repositories[MODEL] = Repository(FILES)
    fetch_snapshot(MODEL)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert fetch_snapshot(MODEL).commit == "1" * 40


@pytest.mark.parametrize(
    ("token", "missing"),
    [("", "there is no token"), ("hf_other", "has not been given access"), ("hf_wrong", "token is not valid")],
)
def test_gated_model_error_names_what_is_missing(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, token: str, missing: str
) -> None:
    hub.repositories[MODEL] = Repository(FILES, gated=True)
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    error = refusal()
    assert missing in error.message
    assert "HF_TOKEN" in error.remedy
    assert f"{hub.endpoint}/{MODEL}" in error.remedy


def test_gated_model_is_fetched_with_a_valid_token(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.repositories[MODEL] = Repository(FILES, gated=True)
    monkeypatch.setenv("HF_TOKEN", "hf_reader")
    assert names(fetch_snapshot(MODEL).folder) == NEEDED


@pytest.mark.parametrize("token", ["", "hf_other"])
def test_private_model_error_equals_that_of_a_missing_one(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    hub.repositories[MODEL] = Repository(FILES, private=True)
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    messages = [refusal(name).message.replace(name, "") for name in (MODEL, "org/gone")]
    assert messages[0] == messages[1]
    assert "private" in messages[0]


def test_pickles_are_refused(hub: Hub) -> None:
    hub.repositories[MODEL] = Repository({"config.json": b"{}", "pytorch_model.bin": b"pickle"})
    assert "safetensors" in refusal().message


@pytest.mark.parametrize(("author", "taken"), [("SFconvertbot", True), ("anybody", False)])
def test_only_the_hubs_own_conversions_are_used(hub: Hub, author: str, *, taken: bool) -> None:
    pickled = {"config.json": b"{}", "pytorch_model.bin": b"pickle"}
    hub.repositories[MODEL] = Repository(pickled, offers={author: {**pickled, "model.safetensors": b"w"}})
    if taken:
        assert fetch_snapshot(MODEL).commit == "2" * 40
    else:
        refusal()


@pytest.mark.parametrize("unreachable", [False, True])
def test_conversion_is_used_without_a_network_once_it_is_cached(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, *, unreachable: bool
) -> None:
    pickled = {"config.json": b"{}", "pytorch_model.bin": b"pickle"}
    hub.repositories[MODEL] = Repository(pickled, offers={"SFconvertbot": {**pickled, "model.safetensors": b"w"}})
    fetch_snapshot(MODEL)
    if unreachable:
        monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    else:
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert fetch_snapshot(MODEL).commit == "2" * 40
    assert TorchDevices().commit(MODEL) == "2" * 40


def test_main_branch_is_preferred_to_an_older_conversion(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    pickled = {"config.json": b"{}", "pytorch_model.bin": b"pickle"}
    hub.repositories[MODEL] = Repository(pickled, offers={"SFconvertbot": {**pickled, "model.safetensors": b"w"}})
    fetch_snapshot(MODEL)
    hub.repositories[MODEL] = Repository(FILES, commit="3" * 40)
    fetch_snapshot(MODEL)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert fetch_snapshot(MODEL).commit == "3" * 40


def test_missing_shard_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / MODEL
    folder.mkdir(parents=True)
    (folder / "model-00001-of-00002.safetensors").write_bytes(b"w")
    index = '{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}'
    (folder / "model.safetensors.index.json").write_text(index)
    monkeypatch.setenv("EXPERT_MODELS_URL", str(tmp_path))
    assert "model-00002-of-00002.safetensors" in refusal().message


def test_operators_folder_takes_precedence_with_its_commit(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "models" / MODEL
    (folder / METADATA).parent.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"w")
    (folder / METADATA).write_text("a" * 40 + "\netag\n0\n")
    monkeypatch.setenv("EXPERT_MODELS_URL", (tmp_path / "models").as_uri())
    found = fetch_snapshot(MODEL)
    assert found.folder == folder
    assert found.commit == "a" * 40
    assert TorchDevices().commit(MODEL) == "a" * 40
    assert hub.requested_paths == []


@pytest.fixture
def model_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """A bucket with one model."""
    store = MemoryStore()
    for name, content in FILES.items():
        store.put(f"{MODEL}/{name}", content)
    monkeypatch.setattr("obstore.store.from_url", lambda url: store)
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path))
    monkeypatch.setenv("EXPERT_MODELS_URL", "s3://models/here")
    return store


def test_model_is_fetched_from_a_bucket(model_bucket: MemoryStore) -> None:
    found = fetch_snapshot(MODEL)
    assert names(found.folder) == NEEDED
    assert found.commit == ""


def test_only_a_changed_bucket_model_is_fetched_again(model_bucket: MemoryStore) -> None:
    weights = fetch_snapshot(MODEL).folder / "model.safetensors"
    first = weights.stat().st_ino
    fetch_snapshot(MODEL)
    assert weights.stat().st_ino == first
    model_bucket.put(f"{MODEL}/model.safetensors", b"v" * 3_000_000)
    fetch_snapshot(MODEL)
    assert weights.read_bytes() == b"v" * 3_000_000


def test_commit_is_read_from_the_bucket(model_bucket: MemoryStore) -> None:
    model_bucket.put(f"{MODEL}/{METADATA}", ("a" * 40 + "\netag\n0\n").encode())
    assert fetch_snapshot(MODEL).commit == "a" * 40


def test_unreadable_bucket_is_named(model_bucket: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(url: str) -> MemoryStore:
        raise UnknownConfigurationKeyError

    monkeypatch.setattr("obstore.store.from_url", nowhere)
    error = refusal()
    assert "s3://models/here" in error.message
    assert "EXPERT_MODELS_URL" in error.remedy


@pytest.mark.parametrize(
    ("files", "variant", "expected"),
    [
        (["a.json", "model.safetensors", "model.fp16.safetensors"], "", ["a.json", "model.safetensors"]),
        (["model.safetensors", "model.fp16.safetensors"], "fp16", ["model.fp16.safetensors"]),
        (["model.fp16.safetensors"], "", ["model.fp16.safetensors"]),
        (["model.safetensors", "consolidated.safetensors", "original/x.safetensors"], "", ["model.safetensors"]),
        (
            [
                "model_index.json",
                "unet/config.json",
                "unet/d.safetensors",
                "unet/d.fp16.safetensors",
                "all.safetensors",
            ],
            "fp16",
            ["model_index.json", "unet/config.json", "unet/d.fp16.safetensors"],
        ),
        (["m-00001-of-00002.safetensors", "m-00002-of-00002.safetensors"], "", None),
        (["open_clip_model.safetensors", "model.safetensors"], "", ["model.safetensors"]),
        (
            ["diffusion_pytorch_model.safetensors", "diffusion_pytorch_model_promax.safetensors"],
            "",
            ["diffusion_pytorch_model.safetensors"],
        ),
        (["model.safetensors", "voices.safetensors"], "", None),
        (["model.safetensors", "2_Dense/model.safetensors"], "", None),
        (["vocab.txt", "spm.model", "a.py", "a.bin", "onnx/model.onnx", "onnx/a.json"], "", ["vocab.txt", "spm.model"]),
    ],
    ids=range(11),
)
def test_one_set_of_weights_is_selected_from_a_repository(
    files: list[str], variant: str, expected: list[str] | None
) -> None:
    assert select_files(files, variant) == (files if expected is None else expected)

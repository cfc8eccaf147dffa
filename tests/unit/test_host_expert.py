import json
import sys
from collections.abc import Callable
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from experts.host.expert import Expert, Verification, read_expert
from experts.host.load_context import ENGINE_CHOICE, PIPELINE_DEFAULTS, ComputeOptions, PipelineOptions
from protos.hugginggpt.v1.model_pb2 import MODEL_LOCATION_EXTERNAL, MODEL_LOCATION_INTERNAL
from services.common.errors import FailedPrecondition, NotFound, ServiceError

CARD = {"id": "m", "task": "summarization"}
TASKS = "TASKS = {'summarization': None, 'text-shouting': None}\n"
SHOUTING = {"name": "text-shouting", "outputs": [{"name": "text", "modality": "MODALITY_TEXT"}]}

Package = Callable[..., str]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    """Writes a package with the files of an expert; returns its name."""

    def make(cards: list[dict[str, Any]], *, tasks: str = TASKS, specs: list[dict[str, Any]] | None = None) -> str:
        name = f"expert_{uuid4().hex}"
        folder = tmp_path / name
        folder.mkdir()
        (folder / "__init__.py").touch()
        (folder / "tasks.py").write_text(tasks)
        (folder / "models.json").write_text(json.dumps(cards))
        if specs is not None:
            (folder / "tasks.json").write_text(json.dumps(specs))
        monkeypatch.syspath_prepend(tmp_path)
        return name

    return make


def ids(expert: Expert) -> list[str]:
    return [offer.card.id for offer in expert.offers]


def test_expert_is_read_from_its_package(package: Package) -> None:
    cards = [CARD, {"id": "loud", "task": "text-shouting", "revision": "7", "location": "MODEL_LOCATION_EXTERNAL"}]
    name = package(cards, specs=[SHOUTING])
    expert = read_expert(name)
    assert expert.name == name
    assert ids(expert) == ["m", "loud"]
    assert expert.preload == ("m", "loud")
    assert [offer.spec.name for offer in expert.offers] == ["summarization", "text-shouting"]
    assert [offer.card.location for offer in expert.offers] == [MODEL_LOCATION_INTERNAL, MODEL_LOCATION_EXTERNAL]
    assert expert.offers[1].card.revision == "7"


def test_model_without_its_engine_is_skipped(package: Package) -> None:
    requires = "REQUIRES = {'m': 'no_such_engine', 'n': 'json.decoder'}\n"
    expert = read_expert(package([CARD, {**CARD, "id": "n"}], tasks=TASKS + requires))
    assert ids(expert) == ["n"]
    assert expert.preload == ("n",)


@pytest.mark.parametrize(
    ("module", "distribution"), [("grpc_health.v1", "grpcio-health-checking"), ("pytest", "pytest")]
)
def test_revision_defaults_to_the_engine_version(package: Package, module: str, distribution: str) -> None:
    expert = read_expert(package([CARD], tasks=f"{TASKS}REQUIRES = {{'m': {module!r}}}\n"))
    assert expert.offers[0].card.revision == version(distribution)


@pytest.mark.parametrize(("preload", "read"), [("()", ()), ("('n', 'gone')", ("n",))])
def test_preload_is_declared_or_all_models(package: Package, preload: str, read: tuple[str, ...]) -> None:
    name = package([CARD, {**CARD, "id": "n"}], tasks=f"{TASKS}PRELOAD = {preload}\n")
    assert read_expert(name).preload == read


@pytest.mark.parametrize(
    ("cards", "parts", "message"),
    [
        ([{**CARD, "task": "text-singing"}], {}, "text-singing of model m is neither standard"),
        ([{**CARD, "task": "translation"}], {}, "translation of model m has no loader in TASKS"),
        ([CARD, CARD], {}, "m has two cards for summarization"),
        ([{**CARD, "id": "a b"}], {}, "'a b' is not a valid model id"),
        ([{**CARD, "id": "a,b"}], {}, "'a,b' is not a valid model id"),
        ([{**CARD, "colour": "red"}], {}, "cannot read models.json"),
        ([{**CARD, "gpu": {"dtype": "int8"}}], {}, "dtype in gpu of model m is 'int8'; choose one of fp32"),
        ([{**CARD, "gpu": {"attention": "org/kernel"}}], {}, "attention in gpu of model m is 'org/kernel'; choose"),
        ([{**CARD, "gpu": {"tf32": 1}}], {}, "tf32 in gpu of model m is 1; choose true or false"),
        ([{**CARD, "gpu": {"kernel": "sdpa"}}], {}, "gpu of model m has no option kernel; its options are attention"),
        ([{**CARD, "pipeline": {"steps": 4}}], {}, "pipeline of model m has no option steps; its options are"),
        ([{**CARD, "pipeline": {"dtypes": {"vae": "int8"}}}], {}, "dtypes in pipeline of model m has 'int8'; choose"),
        ([{**CARD, "pipeline": {"offload": 1}}], {}, "offload in pipeline of model m is 1; choose true or false"),
        ([{**CARD, "memory_class": "1GB"}], {}, "memory_class of model m is '1GB'; choose one of cpu"),
        ([{**CARD, "verified": [{"what": "license"}]}], {}, "verified of model m must be a list of objects with what"),
        ([CARD], {"specs": [{**SHOUTING, "name": "summarization"}]}, "summarization in tasks.json is a standard task"),
        (
            [CARD],
            {"specs": [SHOUTING, {**SHOUTING, "description": "Other."}]},
            "text-shouting .* a duplicate",
        ),
        ([CARD], {"tasks": f"{TASKS}REQUIRES = {{'m': 'no_such_engine'}}\n"}, "no model whose engine is installed"),
        ([], {}, "no model"),
    ],
    ids=range(19),
)
def test_contradiction_between_files_is_reported(
    package: Package, cards: list[Any], parts: dict[str, Any], message: str
) -> None:
    with pytest.raises(FailedPrecondition, match=message) as caught:
        read_expert(package(cards, **parts))
    assert caught.value.remedy


def test_card_states_bytes_and_measurements(package: Package) -> None:
    stated = {**CARD, "weight_bytes": {"float32": 8, "float16": 4}, "measured": {"date": "2026-11-26"}}
    (offer,) = read_expert(package([stated])).offers
    assert offer.weight_bytes == {"float32": 8, "float16": 4}


def test_card_chooses_how_a_gpu_computes_its_model(package: Package) -> None:
    chosen = {**CARD, "gpu": {"dtype": "fp16", "attention": "sdpa", "tf32": False}}
    expert = read_expert(package([chosen, {**CARD, "id": "n"}]))
    options = [offer.compute for offer in expert.offers]
    assert options == [ComputeOptions("float16", "sdpa", tf32=False), ENGINE_CHOICE]


def test_card_states_arguments_and_number_types_of_its_pipeline(package: Package) -> None:
    stated = {**CARD, "pipeline": {"arguments": {"num_inference_steps": 4}, "dtypes": {"vae": "fp32"}}}
    expert = read_expert(package([stated, {**CARD, "id": "n"}]))
    assert expert.offers[0].pipeline == PipelineOptions({"num_inference_steps": 4}, {"vae": "float32"})
    assert expert.offers[1].pipeline == PIPELINE_DEFAULTS


def test_card_states_that_its_pipeline_is_offloaded(package: Package) -> None:
    (offer,) = read_expert(package([{**CARD, "pipeline": {"offload": True}}])).offers
    assert offer.pipeline.offload


def test_card_states_how_its_facts_are_known(package: Package) -> None:
    fact = {"what": "license", "how": "the Hub's page", "date": "2026-11-26"}
    (offer,) = read_expert(package([{**CARD, "verified": [fact]}])).offers
    assert offer.verified == (Verification("license", "the Hub's page", "2026-11-26"),)


@pytest.mark.parametrize("expert", ["text", "vision", "audio", "video", "diffusion"])
def test_first_card_of_a_task_is_for_cpus_if_any_is(expert: str) -> None:
    """README names it as the default."""
    first: dict[str, str] = {}
    classes: dict[str, set[str]] = {}
    for card in json.loads((files(f"experts.{expert}") / "models.json").read_text(encoding="utf-8")):
        first.setdefault(card["task"], card["memory_class"])
        classes.setdefault(card["task"], set()).add(card["memory_class"])
    assert [task for task, found in classes.items() if "cpu" in found and first[task] != "cpu"] == []


@pytest.mark.parametrize("expert", ["text", "vision", "audio", "video", "diffusion"])
def test_card_of_weights_has_a_parameter_count(expert: str) -> None:
    """Without it, memory is not freed before the first load."""
    cards = json.loads((files(f"experts.{expert}") / "models.json").read_text(encoding="utf-8"))
    assert [card["id"] for card in cards if not card.get("parameter_count")] == [
        card["id"] for card in cards if card["id"].startswith("opencv/")
    ]


@pytest.mark.parametrize(
    ("requested", "model_id"),
    [(("summarization", ""), "m"), (("summarization", "n"), "n")],
)
def test_find_returns_the_matching_offer(package: Package, requested: tuple[str, str], model_id: str) -> None:
    expert = read_expert(package([CARD, {**CARD, "id": "n", "revision": "2"}]))
    assert expert.find(*requested).card.id == model_id


@pytest.mark.parametrize(
    ("requested", "kind", "reason"),
    [
        (("translation", ""), NotFound, "TASK"),
        (("summarization", "gone"), NotFound, "MODEL"),
        (("text-shouting", "m"), NotFound, "MODEL"),
    ],
)
def test_find_refuses_unknown_task_or_model(
    package: Package, requested: tuple[str, str], kind: type[ServiceError], reason: str
) -> None:
    expert = read_expert(package([CARD, {"id": "loud", "task": "text-shouting"}], specs=[SHOUTING]))
    with pytest.raises(kind) as caught:
        expert.find(*requested)
    assert caught.value.reason == reason
    assert caught.value.remedy


def test_reading_an_expert_imports_no_engine(package: Package) -> None:
    engine = "colorsys"
    sys.modules.pop(engine, None)
    read_expert(package([CARD], tasks=f"{TASKS}REQUIRES = {{'m': {engine!r}}}\n"))
    assert engine not in sys.modules


def test_only_keeps_the_allowed_models(package: Package) -> None:
    expert = read_expert(package([CARD, {**CARD, "id": "other"}]))
    assert expert.only(()) == expert
    only = expert.only({"other"})
    assert [offer.card.id for offer in only.offers] == ["other"]
    assert only.preload == ("other",)
    with pytest.raises(NotFound) as caught:
        only.find(CARD["task"], CARD["id"])
    assert caught.value.reason == "MODEL"
    with pytest.raises(FailedPrecondition, match="none of the models that are allowed"):
        expert.only({"gone"})

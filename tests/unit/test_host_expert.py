import json
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from experts.host.expert import Expert, read_expert
from protos.hugginggpt.v1.model_pb2 import MODEL_LOCATION_EXTERNAL, MODEL_LOCATION_INTERNAL
from services.common.errors import FailedPrecondition, NotFound, ServiceError

CARD = {"id": "m", "task": "summarization"}
TASKS = "TASKS = {'summarization': None, 'text-shouting': None}\n"
SHOUTING = {"name": "text-shouting", "outputs": [{"name": "text", "modality": "MODALITY_TEXT"}]}

Package = Callable[..., str]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    """Writes a package with the parts of an expert; gives its name."""

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


def test_an_expert_is_read_from_its_package(package: Package) -> None:
    cards = [CARD, {"id": "loud", "task": "text-shouting", "revision": "7", "location": "MODEL_LOCATION_EXTERNAL"}]
    name = package(cards, specs=[SHOUTING])
    expert = read_expert(name)
    assert (expert.name, ids(expert), expert.preload) == (name, ["m", "loud"], ("m", "loud"))
    assert [offer.spec.name for offer in expert.offers] == ["summarization", "text-shouting"]
    assert [offer.card.location for offer in expert.offers] == [MODEL_LOCATION_INTERNAL, MODEL_LOCATION_EXTERNAL]
    assert expert.offers[1].card.revision == "7"


def test_a_model_whose_engine_is_missing_is_left_out(package: Package) -> None:
    requires = "REQUIRES = {'m': 'no_such_engine', 'n': 'json.decoder'}\n"
    expert = read_expert(package([CARD, {**CARD, "id": "n"}], tasks=TASKS + requires))
    assert (ids(expert), expert.preload) == (["n"], ("n",))


@pytest.mark.parametrize(
    ("module", "distribution"), [("grpc_health.v1", "grpcio-health-checking"), ("pytest", "pytest")]
)
def test_the_version_of_the_engine_is_the_revision(package: Package, module: str, distribution: str) -> None:
    expert = read_expert(package([CARD], tasks=f"{TASKS}REQUIRES = {{'m': {module!r}}}\n"))
    assert expert.offers[0].card.revision == version(distribution)


@pytest.mark.parametrize(("preload", "read"), [("()", ()), ("('n', 'gone')", ("n",))])
def test_an_expert_says_what_is_loaded_before_it_is_ready(
    package: Package, preload: str, read: tuple[str, ...]
) -> None:
    name = package([CARD, {**CARD, "id": "n"}], tasks=f"{TASKS}PRELOAD = {preload}\n")
    assert read_expert(name).preload == read


@pytest.mark.parametrize(
    ("cards", "parts", "complaint"),
    [
        ([{**CARD, "task": "text-singing"}], {}, "text-singing, which is neither standard"),
        ([{**CARD, "task": "translation"}], {}, "translation, for which TASKS has no loader"),
        ([CARD, CARD], {}, "m has two cards for summarization"),
        ([{**CARD, "id": "a b"}], {}, "'a b' is no id"),
        ([{**CARD, "id": "a,b"}], {}, "'a,b' is no id"),
        ([{**CARD, "colour": "red"}], {}, "models.json cannot be read"),
        ([CARD], {"specs": [{**SHOUTING, "name": "summarization"}]}, "summarization is a standard task"),
        ([CARD], {"specs": [SHOUTING, {**SHOUTING, "description": "Other."}]}, "text-shouting is .* twice"),
        ([CARD], {"tasks": f"{TASKS}REQUIRES = {{'m': 'no_such_engine'}}\n"}, "no model whose engine is installed"),
        ([], {}, "no model"),
    ],
    ids=range(10),
)
def test_contradictions_are_named(package: Package, cards: list[Any], parts: dict[str, Any], complaint: str) -> None:
    with pytest.raises(FailedPrecondition, match=complaint) as caught:
        read_expert(package(cards, **parts))
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("asked", "model_id"),
    [(("summarization", ""), "m"), (("summarization", "n"), "n")],
)
def test_an_offer_is_found(package: Package, asked: tuple[str, str], model_id: str) -> None:
    expert = read_expert(package([CARD, {**CARD, "id": "n", "revision": "2"}]))
    assert expert.find(*asked).card.id == model_id


@pytest.mark.parametrize(
    ("asked", "kind", "reason"),
    [
        (("translation", ""), NotFound, "TASK"),
        (("summarization", "gone"), NotFound, "MODEL"),
        (("text-shouting", "m"), NotFound, "MODEL"),
    ],
)
def test_what_is_not_offered_is_refused(
    package: Package, asked: tuple[str, str], kind: type[ServiceError], reason: str
) -> None:
    expert = read_expert(package([CARD, {"id": "loud", "task": "text-shouting"}], specs=[SHOUTING]))
    with pytest.raises(kind) as caught:
        expert.find(*asked)
    assert caught.value.reason == reason
    assert caught.value.remedy


def test_reading_an_expert_loads_no_engine(package: Package) -> None:
    engine = "colorsys"
    sys.modules.pop(engine, None)
    read_expert(package([CARD], tasks=f"{TASKS}REQUIRES = {{'m': {engine!r}}}\n"))
    assert engine not in sys.modules


def test_of_its_models_an_expert_may_keep_those_that_are_allowed(package: Package) -> None:
    expert = read_expert(package([CARD, {**CARD, "id": "other"}]))
    assert expert.only(()) == expert
    only = expert.only({"other"})
    assert ([offer.card.id for offer in only.offers], only.preload) == (["other"], ("other",))
    with pytest.raises(NotFound) as caught:
        only.find(CARD["task"], CARD["id"])
    assert caught.value.reason == "MODEL"
    with pytest.raises(FailedPrecondition, match="none of the models that are allowed"):
        expert.only({"gone"})

"""Models of the cards load from their repositories: right class, all weights, no others; weights are zero."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from experts.host import load_context
from experts.torch_host import checkpoint
from experts.torch_host.weight_checks import check_weights
from services.common.errors import FailedPrecondition
from tests.readme import MODALITIES
from tests.repositories import FIXTURES, SOURCES, WITHOUT_WEIGHTS, Fixture, fixture_ids
from tests.repositories.defaults import differing_fields
from tests.repositories.sizes import Repositories, card_sizes
from tests.repositories.tensors import Tensor, Tensors, write_sparse
from tests.verification.cards import cards_path, read_cards

pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:transformers.audio_utils"),
]
HEAD = re.compile(r"head|classifier|predictions|outputs|proj_out|conv_out|decode|projector|pred|embed")
"""Names of the last layers, the most telling ones first."""
ABSENT = frozenset({"wav2vec2.masked_spec_embed"})
"""Tensors that repositories lack and only training uses."""
LARGE = 1_000_000_000
"""Parameters of a model that takes seconds to load."""
MAX_FIXTURE_BYTES = 3_000_000


class Card(NamedTuple):
    """One card with a repository."""

    modality: str
    task: str
    model: str
    parameter_count: int
    options: load_context.PipelineOptions

    @property
    def loader(self) -> Callable[[str, str], Any]:
        return import_module(f"experts.{self.modality}.tasks").TASKS[self.task]  # type: ignore[no-any-return]


class LoadedClass(NamedTuple):
    """One class that a loader loaded, with the names that the library reports."""

    name: str
    missing: list[str]
    unexpected: list[str]
    mismatched: list[str]


@pytest.fixture(scope="module")
def repositories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repositories]:
    folder = tmp_path_factory.mktemp("repositories")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("EXPERT_MODELS_URL", str(folder))
        environment.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        yield Repositories(folder)


def _link(source: Path, target: Path) -> None:
    for path in source.rglob("*"):
        if path.is_file():
            link = target / path.relative_to(source)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path)


def _find_head(tensors: Tensors, extra: Collection[str]) -> str:
    doubled = {tensors[name].shape for name in extra}  # a class may use either of two equal tensors
    names = [name for name, tensor in tensors.items() if tensor.shape and tensor.shape not in doubled]
    return max(names, key=lambda name: (bool(HEAD.search(name)), name.endswith("weight"), name))


def damage(repositories: Repositories, model_id: str, root: Path, *, shape: bool) -> None:
    """Copies a repository as links into a folder of models, without one tensor or with another shape of it."""
    files = repositories.build(model_id)
    damaged = max(files, key=lambda name: files[name].parameter_count)
    for required in Fixture.read(model_id).required:
        _link(repositories.folder / required, root / required)
    _link(repositories.folder / model_id, root / model_id)
    tensors = dict(files[damaged].tensors)
    deviations = Fixture.read(model_id).deviations()
    name = _find_head(tensors, {*deviations.get("extra", ()), *deviations.get("untied", ())})
    whole = tensors.pop(name)
    if shape:
        tensors[name] = Tensor(whole.dtype, (whole.shape[0] + 1, *whole.shape[1:]))
    path = root / model_id / damaged
    path.unlink()
    write_sparse(path, tensors)


CARDS = [
    Card(
        name,
        card["task"],
        card["id"],
        card.get("parameter_count", 0),
        load_context.PipelineOptions.from_card(card),
    )
    for name in MODALITIES
    for card in read_cards(cards_path(f"experts.{name}"))
    if card["id"] not in WITHOUT_WEIGHTS
]
LOADS = [
    pytest.param(card, marks=pytest.mark.slow if card.parameter_count >= LARGE else ())
    for card in {(card.loader, card.model): card for card in reversed(CARDS)}.values()
]
"""A card of each model and loader: a loader of several tasks loads the same for each."""
FIRST_CARDS = list({card.loader.__qualname__: card for card in reversed(CARDS)}.values())
"""The first card of each loader."""


LIBRARY_FILES = [
    (model, name)
    for model in fixture_ids()
    for name in Fixture.read(model).files
    if Fixture.read(model).source_of(name) == "library"
]


def name_card(card: Card) -> str:
    return f"{card.modality}-{card.task}-{card.model}"


def load(card: Card) -> None:
    """Loads a card's model by its loader, with the number type of its file, and closes it."""
    options = load_context.ComputeOptions(dtype=Fixture.read(card.model).dtype)
    context = load_context.LoadContext(
        "", task=card.task, model_id=card.model, device="cpu", compute=options, pipeline=card.options
    )
    with load_context.use(context):
        card.loader(card.model, "cpu").close()


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[LoadedClass]:
    """The classes that loaders have loaded."""
    found: list[LoadedClass] = []

    def record(model_id: str, class_name: str, info: Mapping[str, Any], **options: Any) -> None:
        names = (sorted(map(str, info[f"{kind}_keys"])) for kind in ("missing", "unexpected", "mismatched"))
        found.append(LoadedClass(class_name, *names))
        check_weights(model_id, class_name, info, **options)

    monkeypatch.setattr(checkpoint, "check_weights", record)
    return found


@pytest.mark.parametrize("card", LOADS, ids=name_card)
def test_loader_needs_exactly_the_tensors_of_the_repository(
    card: Card, repositories: Repositories, loaded: list[LoadedClass]
) -> None:
    repositories.build(card.model)
    load(card)
    known = set(Fixture.read(card.model).deviations().get("extra", ()))
    assert loaded
    assert [name for each in loaded for name in each.missing if name not in ABSENT] == []
    assert [name for each in loaded for name in each.mismatched] == []
    assert [name for each in loaded for name in each.unexpected if name not in known] == []


@pytest.mark.parametrize("card", CARDS, ids=name_card)
def test_sizes_on_the_card_are_those_of_the_repository(card: Card, repositories: Repositories) -> None:
    (stated,) = (
        each
        for each in read_cards(cards_path(f"experts.{card.modality}"))
        if (each["task"], each["id"]) == (card.task, card.model)
    )
    sizes = card_sizes(stated, repositories)
    assert {name: stated.get(name) for name in sizes} == sizes, "run `python -m tests.repositories`"


@pytest.mark.slow
@pytest.mark.parametrize("card", FIRST_CARDS, ids=name_card)
@pytest.mark.parametrize(
    ("shape", "error"), [(False, r"lack .*, which .* needs"), (True, r"has the shape .*; .* needs")]
)
def test_loader_refuses_a_repository_with_a_damaged_tensor(
    card: Card, shape: bool, error: str, repositories: Repositories, tmp_path: Path
) -> None:
    damage(repositories, card.model, tmp_path, shape=shape)
    with pytest.MonkeyPatch.context() as environment, pytest.raises(FailedPrecondition, match=error):
        environment.setenv("EXPERT_MODELS_URL", str(tmp_path))
        load(card)


def test_every_card_with_a_repository_has_a_fixture() -> None:
    assert {card.model for card in CARDS} <= set(fixture_ids())


def test_every_fixture_is_used() -> None:
    used = {card.model for card in CARDS}
    assert set(fixture_ids()) <= used | {name for model in used for name in Fixture.read(model).required}


@pytest.mark.parametrize("model", fixture_ids())
def test_every_file_of_a_fixture_has_a_source(model: str) -> None:
    assert set(Fixture.read(model).sources) <= set(SOURCES)


@pytest.mark.parametrize(("model", "name"), LIBRARY_FILES)
def test_file_whose_source_is_the_library_has_its_defaults(model: str, name: str) -> None:
    assert differing_fields(Fixture.read(model).files[name]) == {}


def test_field_with_another_value_differs_from_the_defaults() -> None:
    content = Fixture.read("microsoft/resnet-50").files["config.json"]
    assert differing_fields({**content, "embedding_size": 65}) == {"embedding_size": 65}


def test_fixtures_are_small() -> None:
    assert sum(path.stat().st_size for path in FIXTURES.glob("*.json")) <= MAX_FIXTURE_BYTES

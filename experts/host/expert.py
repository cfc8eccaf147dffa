"""Tasks and models that an expert offers, read from its package.

An expert is a package with these files:

    tasks.py     TASKS: Loader by task name; optional:
                 REQUIRES: by model id, the Python module that the model requires;
                 PRELOAD: ids of the models to load before the expert is ready, in that order, instead of all;
                 ISOLATED: modules of engines that run in worker processes;
                 DEVICES: the engine's devices.Devices or devices.Repositories.
                 Alternatively only EXPERT, a function of name and version that returns the Expert, for offers that
                 are known only at startup.
    models.json  its ModelCards, each optionally with "gpu": how a GPU computes it (ComputeOptions), "pipeline": how its
                 pipeline is called (PipelineOptions), "verified": how its facts are known (Verification),
                 "weight_bytes" (Offer), and "measured": what `make verify-models` found when it ran
    tasks.json   TaskSpecs of its own tasks, in addition to the standard ones; optional
"""

import json
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module, metadata
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import structlog
from google.protobuf import json_format
from google.protobuf.message import Message

from experts.host.devices import Devices, Repositories
from experts.host.handler import Loader
from experts.host.input_validation import FILES
from experts.host.load_context import ENGINE_CHOICE, PIPELINE_DEFAULTS, ComputeOptions, PipelineOptions
from experts.host.memory_class import check_class, order_for_memory
from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1.model_pb2 import MODEL_LOCATION_INTERNAL, MODEL_LOCATION_UNSPECIFIED, ModelCard
from protos.hugginggpt.v1.task_pb2 import TaskSpec
from services.common.errors import FailedPrecondition, NotFound

_DISTRIBUTION = "hugginggpt"
_OWN = ("experts", "gateway", "protos", "services")
"""Top-level packages of this project: if one of their modules is absent, no installation helps."""

_ROOT = Path(__file__).parents[2]


class EngineNotInstalled(FailedPrecondition):
    """None of an expert's models has its engine installed."""


def is_missing_dependency(error: ModuleNotFoundError) -> bool:
    """Whether the absent module belongs to another project, so that installing that helps."""
    return bool(error.name) and _root_package(error.name or "") not in _OWN


def missing_package(error: ModuleNotFoundError) -> str:
    """Returns a message that names the missing package."""
    return f"the Python package {_root_package(error.name or '')} is not installed"


def install_command(expert: str, module: str = "") -> str:
    """Returns the shell command that installs an expert's packages into the Python that runs it.

    Args:
        expert: name of the expert; each expert of this project has an extra of the same name.
        module: absent module, for experts without an extra.
    """
    if expert not in _extras():
        return (
            f"install the package that provides {_root_package(module)}: {shlex.quote(sys.executable)} -m pip install …"
        )
    if (_ROOT / "pyproject.toml").is_file():  # a checkout, as README installs it
        target = shlex.quote(f"{_ROOT}[{expert}]")
        return f"{shlex.quote(sys.executable)} -m pip install --editable {target}"
    return f"{shlex.quote(sys.executable)} -m pip install '{_DISTRIBUTION}[{expert}]'"


def _extras() -> frozenset[str]:
    project = _ROOT / "pyproject.toml"
    if project.is_file():
        declared = tomllib.loads(project.read_text("utf-8"))["project"].get("optional-dependencies", {})
        return frozenset(declared)
    try:
        return frozenset(metadata.metadata(_DISTRIBUTION).get_all("Provides-Extra") or ())
    except metadata.PackageNotFoundError:
        return frozenset()


def _root_package(module: str) -> str:
    return module.partition(".")[0]


log = structlog.get_logger(__name__)

_MODEL_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")


@dataclass(frozen=True)
class Verification:
    """How facts on a card are known."""

    what: str
    """The facts, such as "license, revision"."""
    how: str
    """Their source, such as "the Hub's page in a public index"."""
    date: str
    """When they were looked up, as YYYY-MM-DD."""

    @classmethod
    def from_card(cls, entry: Mapping[str, Any]) -> "tuple[Verification, ...]":
        """Reads the field "verified" of an entry of models.json.

        Raises:
            ValueError: names the model.
        """
        try:
            return tuple(cls(**facts) for facts in entry.get("verified", ()))
        except TypeError as error:
            where = f"verified of model {entry.get('id')}"
            raise ValueError(f"{where} must be a list of objects with what, how and date") from error


@dataclass(frozen=True)
class Offer:
    """One model for one task."""

    spec: TaskSpec
    card: ModelCard
    loader: Loader
    compute: ComputeOptions = ENGINE_CHOICE
    """How a GPU computes it, from its card."""
    pipeline: PipelineOptions = PIPELINE_DEFAULTS
    """How its pipeline is called, from its card."""
    verified: tuple[Verification, ...] = ()
    """How the facts on its card are known."""
    weight_bytes: Mapping[str, int] = field(default_factory=dict)
    """Bytes of the weights in memory as "float32" and as "float16" (or bfloat16), from its card."""


@dataclass(frozen=True)
class Expert:
    """Everything that one expert offers; the first model of a task is its default."""

    name: str
    offers: tuple[Offer, ...]
    preload: tuple[str, ...] = ()
    """Ids of the models to load before it is ready."""
    version: str = ""
    """Version of its code; empty if unknown."""
    devices: Devices | None = None
    """Devices of its engine, if it uses any other than the CPU."""
    isolated_modules: tuple[str, ...] = ()
    """Modules of the engines that run in worker processes."""
    connections: Callable[[Callable[[], None]], AbstractAsyncContextManager[None]] = lambda _changed: nullcontext()
    """Opens connections for as long as it serves; receives a callback for changes of an unavailable_reason."""

    @property
    def takes_files(self) -> bool:
        """Whether any of its inputs is decoded in a worker process."""
        return any(port.modality in FILES for offer in self.offers for port in offer.spec.inputs)

    def only(self, allowed: Collection[str]) -> "Expert":
        """Returns the expert with only the allowed models; an empty collection allows all.

        Raises:
            FailedPrecondition: it has none of the allowed models.
        """
        if not allowed:
            return self
        offers = tuple(offer for offer in self.offers if offer.card.id in allowed)
        if not offers:
            known = ", ".join(dict.fromkeys(offer.card.id for offer in self.offers))
            remedy = f"name some of its models in EXPERT_ALLOWED: {known}"
            raise FailedPrecondition(f"{self.name} has none of the models that are allowed", remedy=remedy)
        return replace(self, offers=offers, preload=tuple(model for model in self.preload if model in allowed))

    def find(self, task: str, model_id: str) -> Offer:
        """Returns the offer for a task and model; an empty id selects the first model.

        Raises:
            NotFound: TASK or MODEL.
        """
        offers = [offer for offer in self.offers if offer.spec.name == task]
        if not offers:
            known = ", ".join(dict.fromkeys(offer.spec.name for offer in self.offers))
            raise NotFound(f"{self.name} has no task {task}", reason="TASK", remedy=f"its tasks are {known}")
        found = next((offer for offer in offers if model_id in ("", offer.card.id)), None)
        if found is None:
            known = ", ".join(offer.card.id for offer in offers)
            remedy = f"its models for it are {known}"
            raise NotFound(f"{self.name} has no model {model_id} for {task}", reason="MODEL", remedy=remedy)
        return found


def package_in(folder: Path) -> str:
    """Makes a folder importable as a package and returns the package's name.

    Raises:
        FailedPrecondition: it has no tasks.py, or its name is not a valid or unique module name.
    """
    path, name = folder.resolve(), folder.resolve().name
    if not (path / "tasks.py").is_file():
        remedy = "give the folder of an expert, with tasks.py, models.json and optionally tasks.json"
        raise FailedPrecondition(f"there is no tasks.py in {folder}", remedy=remedy)
    if not name.isidentifier():
        raise FailedPrecondition(
            f"cannot import a folder named {name!r}", remedy="use only letters, digits and underscores in its name"
        )
    sys.path.insert(0, str(path.parent))
    found = find_spec(name)
    if found is None or str(path) not in (found.submodule_search_locations or ()):
        raise FailedPrecondition(f"another module is named {name}", remedy="rename the folder")
    return name


def read_expert(package: str) -> Expert:
    """Reads the expert of a package, without models whose engine is not installed.

    Raises:
        FailedPrecondition: its files contradict each other.
        EngineNotInstalled: no model is left.
    """
    tasks: Mapping[str, Any] = vars(import_module(f"{package}.tasks"))
    if made := tasks.get("EXPERT"):
        return made(package.rpartition(".")[2], _version_of(_DISTRIBUTION))  # type: ignore[no-any-return]  # an Expert
    requires: Mapping[str, str] = tasks.get("REQUIRES", {})
    devices, folder = tasks.get("DEVICES"), files(package)
    cards, options = _read_cards(folder / "models.json")
    if isinstance(devices, Repositories):
        found = [_with_commit(card, devices) for card in cards if _is_installed(card, devices.module)]
        installed = order_for_memory(found, devices.largest_memory())
    else:
        modules = {card.id: requires.get(card.id, "") for card in cards}
        installed = [
            _with_engine_version(card, modules[card.id]) for card in cards if _is_installed(card, modules[card.id])
        ]
    if not installed:
        remedy = install_command(package.rpartition(".")[2], next(filter(None, requires.values()), ""))
        raise EngineNotInstalled(f"{package} has no model whose engine is installed", remedy=remedy)
    specs = _specs(_read(folder / "tasks.json", TaskSpec))
    offers = build_offers(installed, specs, tasks["TASKS"])
    offers = tuple(replace(offer, **options[offer.card.task, offer.card.id]) for offer in offers)
    present = dict.fromkeys(card.id for card in installed)
    preload = tuple(model for model in tasks.get("PRELOAD", present) if model in present)
    name, version = package.rpartition(".")[2], _version_of(_DISTRIBUTION)
    return Expert(name, offers, preload, version, devices, tuple(tasks.get("ISOLATED", ())))


def build_offers(
    cards: Iterable[ModelCard], specs: Mapping[str, TaskSpec], loaders: Mapping[str, Loader]
) -> tuple[Offer, ...]:
    """Combines model cards with their task specs and loaders.

    Raises:
        FailedPrecondition: a card has no spec or no loader, is a duplicate, or has an invalid id.
    """
    offers: dict[tuple[str, str], Offer] = {}
    for card in cards:
        if not _MODEL_ID.fullmatch(card.id):
            raise _inconsistency_error(f"{card.id!r} is not a valid model id: use only letters, digits and . _ / -")
        if card.task not in specs:
            raise _inconsistency_error(f"task {card.task} of model {card.id} is neither standard nor in tasks.json")
        if card.task not in loaders:
            raise _inconsistency_error(f"task {card.task} of model {card.id} has no loader in TASKS")
        if (card.task, card.id) in offers:
            raise _inconsistency_error(f"model {card.id} has two cards for {card.task}")
        offers[card.task, card.id] = Offer(specs[card.task], card, loaders[card.task])
    return tuple(offers.values())


def _specs(own: Iterable[TaskSpec]) -> dict[str, TaskSpec]:
    specs = dict(standard_tasks())
    for spec in own:
        if specs.setdefault(spec.name, spec) != spec:
            raise _inconsistency_error(f"task {spec.name} in tasks.json is a standard task or a duplicate")
    return specs


_OPTIONS: Mapping[str, tuple[str, Callable[[Mapping[str, Any]], Any]]] = {
    "gpu": ("compute", ComputeOptions.from_card),
    "pipeline": ("pipeline", PipelineOptions.from_card),
    "verified": ("verified", Verification.from_card),
    "weight_bytes": ("weight_bytes", lambda entry: entry.get("weight_bytes", {})),
}
"""Fields of models.json that ModelCard does not have: attribute of Offer, and reader of the entry."""

_MEASURED = "measured"
"""Field of models.json for readers of the file only."""


def _read_cards(file: Traversable) -> tuple[list[ModelCard], dict[tuple[str, str], dict[str, Any]]]:
    """Reads the cards in a JSON file, and their options (attributes of Offer) by task and model id."""
    entries = _read_entries(file)
    with _named_in_errors(file):
        options = {
            (entry.get("task", ""), entry.get("id", "")): {name: read(entry) for name, read in _OPTIONS.values()}
            for entry in entries
        }
        ignored = {*_OPTIONS, _MEASURED}
        facts = [{name: value for name, value in entry.items() if name not in ignored} for entry in entries]
        cards: list[Any] = [_parse_message(entry, ModelCard()) for entry in facts]
        for card in cards:
            check_class(card)
        return cards, options


def _read(file: Traversable, kind: type[Any]) -> list[Any]:
    """Reads the messages in a JSON file; none if the file does not exist."""
    entries = _read_entries(file)
    with _named_in_errors(file):
        return [_parse_message(entry, kind()) for entry in entries]


def _read_entries(file: Traversable) -> list[dict[str, Any]]:
    if not file.is_file():
        return []
    with _named_in_errors(file):
        entries: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
        return entries


@contextmanager
def _named_in_errors(file: Traversable) -> Iterator[None]:
    try:
        yield
    except (ValueError, json_format.ParseError) as error:
        raise _inconsistency_error(f"cannot read {file.name}: {error}") from error


def _parse_message(entry: dict[str, Any], message: Message) -> Message:
    return json_format.ParseDict(entry, message)


def _with_engine_version(card: ModelCard, module: str) -> ModelCard:
    """Returns the card with the version of its engine as the revision, unless it names a commit."""
    return _with_revision(card, card.revision or _version_of(_distribution_of(module) if module else _DISTRIBUTION))


def _with_commit(card: ModelCard, repositories: Repositories) -> ModelCard:
    """Returns the card with the commit of its repository that will be loaded as the revision."""
    return _with_revision(card, card.revision or repositories.commit(card.id))


def _with_revision(card: ModelCard, revision: str) -> ModelCard:
    completed = ModelCard()
    completed.CopyFrom(card)
    completed.revision = revision
    if card.location == MODEL_LOCATION_UNSPECIFIED:
        completed.location = MODEL_LOCATION_INTERNAL
    return completed


def _is_installed(card: ModelCard, module: str) -> bool:
    if not module or find_spec(module.partition(".")[0]):
        return True
    log.warning("model skipped: its engine is not installed", model=card.id, task=card.task, module=module)
    return False


def _version_of(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def _distribution_of(module: str) -> str:
    top = module.partition(".")[0]
    if _version_of(top):
        return top
    owned = re.compile(rf"^{re.escape(top)}([/.]|$)", re.MULTILINE)
    return next((each.name for each, contents in _distributions() if owned.search(contents)), top)


@cache
def _distributions() -> Sequence[tuple[metadata.Distribution, str]]:
    """All distributions, each with the names of its modules and files as text.

    metadata.packages_distributions parses all of these names, which takes several times as long.
    """
    return [
        (each, "\n".join(each.read_text(name) or "" for name in ("top_level.txt", "RECORD")))
        for each in metadata.distributions()
    ]


def _inconsistency_error(message: str) -> FailedPrecondition:
    return FailedPrecondition(message, remedy="correct the expert's tasks.py, models.json or tasks.json")

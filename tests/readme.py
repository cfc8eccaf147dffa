"""Generates parts of README.md and other pages from the code and its data: python -m tests.readme."""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from pydantic import AliasChoices, SecretStr
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

from experts.host.settings import Settings as HostSettings
from experts.llm.tasks import DOCUMENT_TASK, PICTURE_TASKS, TEXT_TASKS
from experts.remote.model_listing import SOURCES
from experts.remote.settings import RemoteSettings
from experts.served.config import OPENAI_TASKS
from experts.torch_host.settings import SourceSettings
from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1.task_pb2 import Port
from services.common.settings import ServiceSettings, StoreSettings, home
from tests.bench import capacity, saturation
from tests.repositories import WITHOUT_WEIGHTS, Fixture, fixture_ids
from tests.support.instruments import instruments

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = (
    README,
    ROOT / "experts" / "README.md",
    ROOT / "experts" / "models.md",
    ROOT / "experts" / "host" / "README.md",
    ROOT / "gateway" / "README.md",
    ROOT / "services" / "common" / "README.md",
    capacity.PAGE,
)

MODALITIES = ("text", "vision", "audio", "video", "diffusion")
HOMES = (*MODALITIES, "lite")
"""Experts by which the tasks are listed: those that only `lite` offers come last."""
ELSEWHERE: Mapping[str, frozenset[str]] = {
    "llm": frozenset({*TEXT_TASKS, DOCUMENT_TASK, *PICTURE_TASKS}),
    "remote": frozenset(SOURCES),
    "served": frozenset(OPENAI_TASKS),
}
"""Experts whose models are not on cards here, with their tasks."""

_TRIED = (
    (
        "Platforms",
        "Linux x86-64, Python 3.11, CPU",
        "macOS, Linux arm64, Python 3.12 to 3.14: the installation was resolved, not run",
    ),
    ("GPUs", "none", 'everything: the benchmark\'s GPU rows say "not measured"'),
    (
        "Kubernetes",
        "manifests rendered, validated against schemas, network policies evaluated; images built and run by podman",
        "a cluster; GKE, EKS, AKS; Docker",
    ),
    (
        "Storage",
        "SQLite, PostgreSQL, local folders, the S3 API (moto's server)",
        "AWS S3, Google Cloud Storage, Azure",
    ),
    (
        "LLMs",
        "a scripted server that speaks OpenAI's protocol, with the errors and dialects of real ones",
        "any real LLM",
    ),
    (
        "Clients",
        "curl, openai, mcp, grpcio, openapi-python-client, Chromium",
        "Firefox, Safari; Open WebUI and LibreChat: only their prompts, as fixtures",
    ),
)
"""Rows of what was run where, without that of the models."""
_COMMIT_LENGTH, _COMMIT_CHARACTERS = 40, 12

_PART = re.compile(r"(<!-- make readme: (\S+) -->\n)(.*?)(<!-- end -->\n)", re.DOTALL)


def rewritten(text: str) -> str:
    """The text with its generated parts made anew.

    Raises:
        KeyError: the text names a part that does not exist.
    """
    return _PART.sub(lambda found: found[1] + PARTS[found[2]]() + found[4], text)


def tasks() -> str:
    """Tasks by the modality that has them, with the first model of each expert for them."""
    return "\n".join(_table(name, group) for name, group in _groups())


def _groups() -> Iterator[tuple[str, list[str]]]:
    by_home = sorted(standard_tasks(), key=lambda task: HOMES.index(_home(task)))
    return ((home, list(group)) for home, group in groupby(by_home, key=_home))


def _home(task: str) -> str:
    return next(name for name in HOMES if task in _defaults(name))


def _table(home: str, group: Sequence[str]) -> str:
    experts = [name for name in dict.fromkeys((home, "lite", *ELSEWHERE)) if any(_cell(name, task) for task in group)]
    title = f"{len(group)} tasks of `{home}`"
    lines = [_row(title, "in → out", *(f"`{name}`" for name in experts)), "|---" * (2 + len(experts)) + "|\n"]
    lines += [_row(task, _flow(task), *(_cell(name, task) for name in experts)) for task in group]
    return "".join(lines)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"


def _flow(task: str) -> str:
    spec = standard_tasks()[task]
    return f"{_ports(spec.inputs)} → {_ports(spec.outputs)}"


def _ports(ports: Sequence[Port]) -> str:
    return ", ".join(f"{port.name}{'' if port.required else '?'}" for port in ports)


def _cell(expert: str, task: str) -> str:
    if expert in ELSEWHERE:
        return "✓" if task in ELSEWHERE[expert] else ""
    return _defaults(expert).get(task, "")


@cache
def _defaults(expert: str) -> dict[str, str]:
    """The model for each task of an expert that is chosen where nothing speaks for another: that of its first card."""
    return {card["task"]: card["id"] for card in reversed(_cards(expert))}


@cache
def _cards(expert: str) -> list[dict[str, Any]]:
    cards: list[dict[str, Any]] = json.loads((ROOT / "experts" / expert / "models.json").read_text(encoding="utf-8"))
    return cards


def needs() -> str:
    """What some rates of runs need."""
    return capacity.tables(_figures())


def limits() -> str:
    """What gives out first."""
    return saturation.bullet_list(_figures())


def _figures() -> capacity.Figures:
    return capacity.figures(capacity.PAGE.read_text(encoding="utf-8"))


def measured() -> str:
    """What there is to fetch and to be sent."""
    rows = (
        _row(f"`{each.prometheus_name}`", f"`{each.name}`", each.kind_and_unit, each.description)
        for each in instruments()
    )
    return "".join([_row("for Prometheus", "by OTLP", "kind", "what"), "|---|---|---|---|\n", *rows])


def host_settings() -> str:
    """Settings of every expert, without those of all processes."""
    return _settings_table(HostSettings, SourceSettings)


def remote_settings() -> str:
    return _settings_table(RemoteSettings)


def _settings_table(*classes: type[BaseSettings]) -> str:
    common = ServiceSettings.model_fields.keys() | StoreSettings.model_fields.keys()
    rows = [
        _row(f"`{_variable(settings, name, field)}`", _default(field), " ".join((field.description or "").split()))
        for settings in classes
        for name, field in settings.model_fields.items()
        if name not in common
    ]
    return "".join([_row("variable", "default", "meaning"), "|---|---|---|\n", *rows])


def _variable(settings: type[BaseSettings], name: str, field: FieldInfo) -> str:
    if isinstance(field.validation_alias, AliasChoices):
        return str(field.validation_alias.choices[0])
    return f"{settings.model_config.get('env_prefix', '')}{name}".upper()


def _default(field: FieldInfo) -> str:
    """The default as it would be set; empty if it is empty."""
    value = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, SecretStr) or value in ("", (), None):
        return ""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, bool | int):
        return str(value).lower()
    return f"`{str(value).replace(str(home()), '$HUGGINGGPT_HOME')}`"


def endpoints() -> str:
    """Requests of the HTTP interface, one row per resource."""
    document = json.loads((ROOT / "gateway" / "openapi.json").read_text(encoding="utf-8"))
    requests = defaultdict[str, list[str]](list)
    for path, operations in document["paths"].items():
        methods = defaultdict[str, list[str]](list)
        for method, operation in operations.items():
            if "operationId" in operation:
                methods[operation["tags"][0]].append(method.upper())
        for tag, names in methods.items():
            requests[tag].append(f"`{', '.join(names)} {path}`")
    rows = (_row(tag, " · ".join(paths)) for tag, paths in requests.items())
    return "".join([_row("resource", "requests"), "|---|---|\n", *rows])


def models() -> str:
    """Cards of the modalities: size, licence, commit, and what is known to work."""
    columns = (
        *("model", "task", "loads (configuration from)", "float32", "16-bit", "for memory", "licence", "commit"),
        "verified with real weights",
    )
    head = _row(*columns) + "|---" * len(columns) + "|\n"
    return head + "".join(_model_row(card) for name in MODALITIES for card in _cards(name))


def _model_row(card: Mapping[str, Any]) -> str:
    sizes = card.get("weight_bytes", {})
    commit = str(card.get("revision", ""))
    measured = card.get("measured")
    return _row(
        card["id"],
        card["task"],
        _load_source(card["id"]),
        *(_megabytes(sizes[dtype]) if dtype in sizes else "" for dtype in ("float32", "float16")),
        card.get("memory_class", ""),
        card.get("license", ""),
        f"`{commit[:_COMMIT_CHARACTERS]}`" if len(commit) == _COMMIT_LENGTH else "",
        f"{measured['date']}, {measured['device']}" if measured else "never",
    )


def _load_source(model_id: str) -> str:
    if model_id in WITHOUT_WEIGHTS:
        return "has no weights"
    return ", ".join(Fixture.read(model_id).sources) if model_id in fixture_ids() else "not tried"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"


def tried() -> str:
    """What the tests run, and what has not been run."""
    cards = [card for name in MODALITIES for card in _cards(name) if card["id"] in fixture_ids()]
    verified = sum("measured" in card for card in cards)
    run = (
        "the engines of `lite`; the loading code of all others, with tiny models made by the tests, and with weights "
        f"of zero for {len(cards)} cards ([experts/models.md](experts/models.md)); real weights of {verified} of them"
    )
    missing = f"real weights of {len(cards) - verified} cards; facts on cards come from public documentation or memory"
    platforms, *others = _TRIED
    rows = (platforms, ("Models", run, missing), *others)
    return "".join(["| | run in the tests | not run |\n|---|---|---|\n", *(_row(*row) for row in rows)])


PARTS: Mapping[str, Callable[[], str]] = {
    "tasks": tasks,
    "metrics": measured,
    "capacity": needs,
    "saturation": limits,
    "endpoints": endpoints,
    "host-settings": host_settings,
    "remote-settings": remote_settings,
    "models": models,
    "tried": tried,
}
"""By the name in the comment of a page."""


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(rewritten(page.read_text(encoding="utf-8")), encoding="utf-8")

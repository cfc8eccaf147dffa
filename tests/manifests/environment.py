"""What the program in a container is told, as its own settings read it."""

import base64
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import AliasChoices
from pydantic_settings import BaseSettings

from experts.host.settings import Settings as Expert
from experts.remote.settings import RemoteSettings
from experts.served.settings import ServedSettings
from experts.torch_host.settings import SourceSettings
from gateway.settings import Settings as Gateway
from services.llm.settings import LlmSettings
from services.orchestrator.settings import Settings as Orchestrator
from services.planner.settings import Settings as Planner
from services.responder.settings import Settings as Responder
from services.selector.settings import Settings as Selector
from tests.manifests.deployment import Container, House, Workload, listed

DOCKER = Path(__file__).parents[2] / "docker"

WITH_WEIGHTS = tuple(f"experts.{name}" for name in ("text", "vision", "audio", "video", "diffusion"))
"""Programs whose models are fetched."""

PROGRAMS: dict[str, tuple[type[BaseSettings], ...]] = {
    "gateway": (Gateway,),
    "gateway.cli": (Gateway,),
    "services.planner": (Planner,),
    "services.selector": (Selector,),
    "services.orchestrator": (Orchestrator,),
    "services.responder": (Responder,),
    "experts.lite": (Expert,),
    "experts.remote": (Expert, RemoteSettings),
    "experts.served": (Expert, ServedSettings),
    **dict.fromkeys(WITH_WEIGHTS, (Expert, SourceSettings)),
}
"""Which settings each program reads."""

ROLES = {"services.planner", "services.selector", "services.responder", "experts.remote"}
"""Who asks an LLM, under a name of its own or the common one."""

LIBRARIES = re.compile(
    r"AWS_(ENDPOINT_URL|REGION|ACCESS_KEY_ID|SECRET_ACCESS_KEY|SESSION_TOKEN|ALLOW_HTTP|VIRTUAL_HOSTED_STYLE_REQUEST)"
    r"|HF_(HOME|TOKEN|ENDPOINT|HUB_OFFLINE|HUB_CACHE)|TRANSFORMERS_OFFLINE|DIFFUSERS_OFFLINE"
    r"|(OMP|OPENBLAS)_NUM_THREADS|OTEL_[A-Z_]+|GRPC_(VERBOSITY|TRACE)|PYTORCH_(CUDA_)?ALLOC_CONF|HOME|HUGGINGGPT_HOME"
    r"|SSL_CERT_FILE|PYTHON[A-Z]+|PATH"
)
"""Variables that libraries read."""

_STAND_INS = {"url": "postgresql://hugginggpt@database.example/hugginggpt", "LLM_BASE_URL": "http://llm.example/v1"}
"""What an operator would write into keys of Secrets that are not in the house."""

_FIELDS = {"status.podIP": "10.0.0.7", "status.hostIP": "10.0.0.1"}
_REFERENCE = re.compile(r"\$\((\w+)\)")
_DOCKER_ENV = re.compile(r'([A-Z][A-Z0-9_]*)=("[^"]*"|\S+)')


def module_of(container: Container) -> str:
    """What it runs: the image's entry point is `python -m`."""
    words = [str(word) for key in ("command", "args") for word in container.spec.get(key) or []]
    return next((word for word in words if word not in {"python", "-m"}), "")


def programs(house: House) -> Iterator[tuple[Container, str]]:
    """Containers that run a program with settings, and which one."""
    for container in house.containers:
        module = module_of(container)
        if container.is_ours and module in PROGRAMS:
            yield container, module


def settings_of(house: House, container: Container) -> tuple[BaseSettings, ...]:
    """What its program would read.

    Raises:
        ValueError: it would refuse to start; says why.
    """
    module = module_of(container)
    with _environment(told(house, container)):
        own = tuple(settings() for settings in PROGRAMS[module])
        return (*own, LlmSettings.of(module.rpartition(".")[2])) if module in ROLES else own


def drawn(house: House, workload: Workload, name: str) -> Iterator[Any]:
    """A setting of the programs in a workload, where they have it."""
    for container in workload.lasting:
        if container.is_ours and module_of(container) in PROGRAMS:
            for settings in settings_of(house, container):
                if hasattr(settings, name):
                    yield getattr(settings, name)


def known_to(module: str) -> set[str]:
    """Names of the variables that a program reads as settings."""
    names = {name for settings in PROGRAMS[module] for name in _names(settings, settings.model_config["env_prefix"])}
    if module in ROLES:
        names |= _names(LlmSettings, "LLM_") | _names(LlmSettings, f"{module.rpartition('.')[2].upper()}_LLM_")
    return names


def _names(settings: type[BaseSettings], prefix: str) -> set[str]:
    found: set[str] = set()
    for name, field in settings.model_fields.items():
        match field.validation_alias:
            case AliasChoices(choices=choices):
                found |= {str(choice) for choice in choices}
            case str(alias):
                found.add(alias)
            case _:
                found.add(f"{prefix}{name}".upper())
    return found


def told(house: House, container: Container) -> dict[str, str]:
    """Its whole environment: what the image sets, then ConfigMaps and Secrets, then its own variables."""
    variables = dict(image_environment(container)) if container.is_ours else {}
    for source in listed(container.spec, "envFrom"):
        variables |= _whole(house, source)
    for entry in listed(container.spec, "env"):
        value = entry.get("value") if "value" in entry else _drawn(house, entry["name"], entry.get("valueFrom", {}))
        if value is not None:
            variables[entry["name"]] = _REFERENCE.sub(lambda found: variables.get(found[1], found[0]), value)
    return variables


def _whole(house: House, source: Mapping[str, Any]) -> dict[str, str]:
    if "configMapRef" in source:
        document = house.named("ConfigMap", source["configMapRef"]["name"]) or {}
        found = dict(document.get("data") or {})
    else:
        found = _secret(house, source["secretRef"]["name"])
    return {f"{source.get('prefix', '')}{name}": value for name, value in found.items()}


def _drawn(house: House, name: str, source: Mapping[str, Any]) -> str | None:
    if "fieldRef" in source:
        return _FIELDS.get(source["fieldRef"]["fieldPath"], name)
    if "configMapKeyRef" in source:
        document = house.named("ConfigMap", source["configMapKeyRef"]["name"]) or {}
        return (document.get("data") or {}).get(source["configMapKeyRef"]["key"])
    if "secretKeyRef" in source:
        wanted = source["secretKeyRef"]
        kept = _secret(house, wanted["name"])
        return kept.get(wanted["key"]) if kept or wanted.get("optional") else _STAND_INS.get(wanted["key"], "given")
    return None


def _secret(house: House, name: str) -> dict[str, str]:
    document = house.named("Secret", name) or {}
    written = {key: base64.b64decode(value).decode() for key, value in (document.get("data") or {}).items()}
    return written | dict(document.get("stringData") or {})


def image_environment(container: Container) -> Mapping[str, str]:
    """What the image of a container sets."""
    core = "hugginggpt/core" in container.image
    return _dockerfile("core" if core else "expert")


@cache
def _dockerfile(name: str) -> Mapping[str, str]:
    text = (DOCKER / f"{name}.Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    last = text.rpartition("\nFROM ")[2]
    lines = [line.removeprefix("ENV ") for line in last.splitlines() if line.startswith("ENV ")]
    return {name: value.strip('"') for line in lines for name, value in _DOCKER_ENV.findall(line)}


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)

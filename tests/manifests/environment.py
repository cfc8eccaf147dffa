"""Environment and settings of the programs in containers, as the programs themselves would read them."""

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
from tests.manifests.deployment import Container, Manifests, Workload, get_list

DOCKER = Path(__file__).parents[2] / "docker"

PROGRAMS_WITH_MODELS = tuple(f"experts.{name}" for name in ("text", "vision", "audio", "video", "diffusion"))
"""Programs that load downloaded models."""

PROGRAMS: dict[str, tuple[type[BaseSettings], ...]] = {
    "gateway": (Gateway,),
    "gateway.cli": (Gateway,),
    "services.planner": (Planner,),
    "services.selector": (Selector,),
    "services.orchestrator": (Orchestrator,),
    "services.responder": (Responder,),
    "experts.lite": (Expert,),
    "experts.bulk": (Expert, SourceSettings),
    "experts.llm": (Expert,),
    "experts.remote": (Expert, RemoteSettings),
    "experts.served": (Expert, ServedSettings),
    **dict.fromkeys(PROGRAMS_WITH_MODELS, (Expert, SourceSettings)),
}
"""Settings classes by program."""

LLM_ROLES = {
    "services.planner": "planner",
    "services.selector": "selector",
    "services.responder": "responder",
    "experts.llm": "expert",
}
"""Programs that call an LLM, with their roles; they read LLM settings with their own prefix or the common one."""

LIBRARIES = re.compile(
    r"AWS_(ENDPOINT_URL|REGION|ACCESS_KEY_ID|SECRET_ACCESS_KEY|SESSION_TOKEN|ALLOW_HTTP|VIRTUAL_HOSTED_STYLE_REQUEST)"
    r"|HF_(HOME|TOKEN|ENDPOINT|HUB_OFFLINE|HUB_CACHE)|TRANSFORMERS_OFFLINE|DIFFUSERS_OFFLINE"
    r"|(OMP|OPENBLAS)_NUM_THREADS|OTEL_[A-Z_]+|GRPC_(VERBOSITY|TRACE)|PYTORCH_(CUDA_)?ALLOC_CONF|HOME|HUGGINGGPT_HOME"
    r"|SSL_CERT_FILE|PYTHON[A-Z]+|PATH"
)
"""Variables that libraries read."""

_EXTERNAL_SECRETS = {
    "url": "postgresql://hugginggpt@database.example/hugginggpt",
    "LLM_BASE_URL": "http://llm.example/v1",
}
"""Example values by key for Secrets that the operator creates."""

_FIELDS = {"status.podIP": "10.0.0.7", "status.hostIP": "10.0.0.1"}
_REFERENCE = re.compile(r"\$\((\w+)\)")
_DOCKER_ENV = re.compile(r'([A-Z][A-Z0-9_]*)=("[^"]*"|\S+)')


def module_of(container: Container) -> str:
    """Python module that a container runs; the image's entry point is `python -m`."""
    arguments = [str(argument) for key in ("command", "args") for argument in container.spec.get(key) or []]
    return next((argument for argument in arguments if argument not in {"python", "-m"}), "")


def programs(manifests: Manifests) -> Iterator[tuple[Container, str]]:
    """Containers that run a known program, with its module."""
    for container in manifests.containers:
        module = module_of(container)
        if container.is_ours and module in PROGRAMS:
            yield container, module


def settings_of(manifests: Manifests, container: Container) -> tuple[BaseSettings, ...]:
    """Reads the settings of a container's program from its environment.

    Raises:
        ValueError: The settings are invalid, so the program would not start.
    """
    module = module_of(container)
    with _environment(environment_of(manifests, container)):
        own = tuple(settings() for settings in PROGRAMS[module])
        return (*own, LlmSettings.of(LLM_ROLES[module])) if module in LLM_ROLES else own


def setting_values(manifests: Manifests, workload: Workload, name: str) -> Iterator[Any]:
    """Values of one setting in the programs of a workload that have it."""
    for container in workload.main_containers:
        if container.is_ours and module_of(container) in PROGRAMS:
            for settings in settings_of(manifests, container):
                if hasattr(settings, name):
                    yield getattr(settings, name)


def variables_of(module: str) -> set[str]:
    """Names of the variables that a program reads as settings."""
    names = {name for each in PROGRAMS[module] for name in _variable_names(each, each.model_config["env_prefix"])}
    if module in LLM_ROLES:
        own_prefix = f"{LLM_ROLES[module].upper()}_LLM_"
        names |= _variable_names(LlmSettings, "LLM_") | _variable_names(LlmSettings, own_prefix)
    return names


def _variable_names(settings: type[BaseSettings], prefix: str) -> set[str]:
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


def environment_of(manifests: Manifests, container: Container) -> dict[str, str]:
    """Environment of a container: the image's variables, overridden by envFrom, overridden by env."""
    variables = dict(image_environment(container)) if container.is_ours else {}
    for source in get_list(container.spec, "envFrom"):
        variables |= _env_from(manifests, source)
    for entry in get_list(container.spec, "env"):
        source = entry.get("valueFrom", {})
        value = entry.get("value") if "value" in entry else _value_from(manifests, entry["name"], source)
        if value is not None:
            variables[entry["name"]] = _REFERENCE.sub(lambda found: variables.get(found[1], found[0]), value)
    return variables


def _env_from(manifests: Manifests, source: Mapping[str, Any]) -> dict[str, str]:
    if "configMapRef" in source:
        document = manifests.find("ConfigMap", source["configMapRef"]["name"]) or {}
        found = dict(document.get("data") or {})
    else:
        found = _secret(manifests, source["secretRef"]["name"])
    return {f"{source.get('prefix', '')}{name}": value for name, value in found.items()}


def _value_from(manifests: Manifests, name: str, source: Mapping[str, Any]) -> str | None:
    if "fieldRef" in source:
        return _FIELDS.get(source["fieldRef"]["fieldPath"], name)
    if "configMapKeyRef" in source:
        document = manifests.find("ConfigMap", source["configMapKeyRef"]["name"]) or {}
        return (document.get("data") or {}).get(source["configMapKeyRef"]["key"])
    if "secretKeyRef" in source:
        reference = source["secretKeyRef"]
        secret = _secret(manifests, reference["name"])
        return (
            secret.get(reference["key"])
            if secret or reference.get("optional")
            else _EXTERNAL_SECRETS.get(reference["key"], "given")
        )
    return None


def _secret(manifests: Manifests, name: str) -> dict[str, str]:
    document = manifests.find("Secret", name) or {}
    decoded = {key: base64.b64decode(value).decode() for key, value in (document.get("data") or {}).items()}
    return decoded | dict(document.get("stringData") or {})


def image_environment(container: Container) -> Mapping[str, str]:
    """Environment variables that a container's image sets."""
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

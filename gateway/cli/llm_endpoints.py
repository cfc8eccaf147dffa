"""The LLM endpoints that the environment names, each proved once; without any, those of this machine are offered."""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import httpx
import structlog
from pydantic import ValidationError
from pydantic_settings import SettingsError

from gateway.cli.doctor_finding import Finding, Level
from gateway.cli.llm_probe import prove
from gateway.client import HuggingGPT, HuggingGPTError
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_OPEN, Caller
from services.llm.settings import LlmSettings

ROLES: Mapping[str, str] = {
    "planner": "the embedded planner plans",
    "selector": "models are chosen by rank",
    "responder": "answers are composed from the results",
}
"""Who may ask an LLM, and what happens where there is none."""

USUAL_PORTS: Mapping[int, str] = {11434: "Ollama", 8000: "vLLM", 8080: "llama.cpp", 1234: "LM Studio"}
"""Where servers listen unless told otherwise."""

LOOK_SECONDS = 1.0
NAMED = 3
"""How many models of an offered server are named."""

Group = tuple[LlmSettings, list[str]]
"""An endpoint as configured, and the roles that have it so."""


def endpoints() -> Iterator[Finding]:
    """What holds of the endpoints; asking them costs tokens."""
    groups, broken = list[Group](), False
    for role in ROLES:
        try:
            _grouped(groups, LlmSettings.of(role), role)
        except (ValidationError, SettingsError) as error:
            broken = True
            yield Finding(f"LLM of the {role}", Level.WRONG, _fault(error), f"see {role.upper()}_LLM_… and LLM_…")
    configured = [group for group in groups if group[0].base_url]
    for settings, roles in configured:
        yield from _proved(settings, _subject(roles))
    if not configured and not broken:
        without = "; ".join(ROLES.values())
        yield Finding("LLM", Level.OK, f"none is configured: {without}", "set LLM_BASE_URL and LLM_MODEL to use one")
        yield from offers(USUAL_PORTS)
    elif configured:
        bare = [role for settings, roles in groups if not settings.base_url for role in roles]
        yield from (Finding(f"LLM of the {role}", Level.OK, f"none is configured: {ROLES[role]}") for role in bare)


def offers(ports: Mapping[int, str]) -> Iterator[Finding]:
    """Servers of this machine that could be used; they are asked for their models and for nothing else.

    Args:
        ports: names of servers by the port where they usually listen.
    """
    for port, name in ports.items():
        url = f"http://127.0.0.1:{port}"
        if (models := _models(f"{url}/v1/models")) and not _is_gateway(url):
            more = f" and {len(models) - NAMED} more" if len(models) > NAMED else ""
            listed = f"{', '.join(models[:NAMED])}{more}"
            found = f"a server answers at {url}, where {name} usually listens, with {listed}; it is not used"
            remedy = f"to use it: export LLM_BASE_URL={url}/v1 LLM_MODEL={models[0]} LLM_INTERNAL=true"
            yield Finding("LLM offer", Level.OK, found, remedy)


def _grouped(groups: list[Group], settings: LlmSettings, role: str) -> None:
    for known, roles in groups:
        if known == settings:
            roles.append(role)
            return
    groups.append((settings, [role]))


def _subject(roles: Sequence[str]) -> str:
    return "LLM" if len(roles) == len(ROLES) else f"LLM of the {' and '.join(roles)}"


def _fault(error: ValidationError | SettingsError) -> str:
    if isinstance(error, SettingsError):
        return "LLM_PRICES is not JSON"  # the only setting that is
    faults = (
        (".".join(map(str, fault["loc"])), fault["msg"].removeprefix("Value error, ")) for fault in error.errors()
    )
    return "; ".join(f"LLM_{name.upper()}: {message}" if name else message for name, message in faults)


def _proved(settings: LlmSettings, subject: str) -> list[Finding]:
    if find_spec("openai") is None:
        found = "the package openai is not installed, without which no LLM can be asked"
        return [Finding(subject, Level.WRONG, found, "pip install 'hugginggpt[llm]'")]
    from services.common import call_context  # noqa: PLC0415  # brings gRPC along

    with _quietly(), call_context.use_caller(Caller(tenant="default", policy=DATA_POLICY_OPEN)):
        return asyncio.run(prove(settings, subject))


@contextmanager
def _quietly() -> Iterator[None]:
    """Without log lines: what they would say is found."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**before)


def _models(url: str) -> list[str]:
    try:
        told: Any = httpx.get(url, timeout=LOOK_SECONDS, trust_env=False).raise_for_status().json()
        return [str(model["id"]) for model in told["data"]]
    except (httpx.HTTPError, ValueError, LookupError, TypeError):
        return []


def _is_gateway(url: str) -> bool:
    try:
        with HuggingGPT(url) as house:
            house.greet()
    except HuggingGPTError:
        return False
    return True

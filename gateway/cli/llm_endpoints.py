"""Checks of the configured LLM endpoints; without any, suggests servers that run on this machine."""

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
from gateway.cli.llm_probe import probe_endpoint
from gateway.client import HuggingGPT, HuggingGPTError
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_OPEN, Caller
from services.llm.settings import LlmSettings

ROLES: Mapping[str, str] = {
    "planner": "the embedded planner plans",
    "selector": "models are chosen by rank",
    "responder": "answers are built from templates",
}
"""Services that can use an LLM, and what each does without one."""

USUAL_PORTS: Mapping[int, str] = {11434: "Ollama", 8000: "vLLM", 8080: "llama.cpp", 1234: "LM Studio"}
"""Default ports of LLM servers."""

DETECTION_SECONDS = 1.0
LISTED_MODELS = 3
"""Models of a detected server that are listed by name."""

Group = tuple[LlmSettings, list[str]]
"""Settings of an endpoint, and the roles that share them."""


def endpoints() -> Iterator[Finding]:
    """Checks the endpoints; this uses tokens."""
    groups, is_invalid = list[Group](), False
    for role in ROLES:
        try:
            _grouped(groups, LlmSettings.of(role), role)
        except (ValidationError, SettingsError) as error:
            is_invalid = True
            yield Finding(
                f"LLM of the {role}", Level.WRONG, _settings_error(error), f"check {role.upper()}_LLM_… and LLM_…"
            )
    configured = [group for group in groups if group[0].base_url]
    for settings, roles in configured:
        yield from _probe(settings, _subject(roles))
    if not configured and not is_invalid:
        without = "; ".join(ROLES.values())
        yield Finding("LLM", Level.OK, f"not configured: {without}", "set LLM_BASE_URL and LLM_MODEL to use one")
        yield from offers(USUAL_PORTS)
    elif configured:
        unconfigured = [role for settings, roles in groups if not settings.base_url for role in roles]
        yield from (Finding(f"LLM of the {role}", Level.OK, f"not configured: {ROLES[role]}") for role in unconfigured)


def offers(ports: Mapping[int, str]) -> Iterator[Finding]:
    """Detects LLM servers on this machine by listing their models.

    Args:
        ports: names of servers by default port.
    """
    for port, name in ports.items():
        url = f"http://127.0.0.1:{port}"
        if (models := _models(f"{url}/v1/models")) and not _is_gateway(url):
            more = f" and {len(models) - LISTED_MODELS} more" if len(models) > LISTED_MODELS else ""
            listed = f"{', '.join(models[:LISTED_MODELS])}{more}"
            found = f"a server at {url} (default port of {name}) offers {listed}; it is not used"
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


def _settings_error(error: ValidationError | SettingsError) -> str:
    if isinstance(error, SettingsError):
        return "LLM_PRICES is not JSON"  # the only JSON setting
    faults = (
        (".".join(map(str, fault["loc"])), fault["msg"].removeprefix("Value error, ")) for fault in error.errors()
    )
    return "; ".join(f"LLM_{name.upper()}: {message}" if name else message for name, message in faults)


def _probe(settings: LlmSettings, subject: str) -> list[Finding]:
    if find_spec("openai") is None:
        found = "the package openai, which LLM calls need, is not installed"
        return [Finding(subject, Level.WRONG, found, "pip install 'hugginggpt[llm]'")]
    from services.common import call_context  # noqa: PLC0415  # imports gRPC, which is slow

    with _without_logs(), call_context.use_caller(Caller(tenant="default", policy=DATA_POLICY_OPEN)):
        return asyncio.run(probe_endpoint(settings, subject))


@contextmanager
def _without_logs() -> Iterator[None]:
    """Suppresses log lines: the findings report the same."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**before)


def _models(url: str) -> list[str]:
    try:
        content: Any = httpx.get(url, timeout=DETECTION_SECONDS, trust_env=False).raise_for_status().json()
        return [str(model["id"]) for model in content["data"]]
    except (httpx.HTTPError, ValueError, LookupError, TypeError):
        return []


def _is_gateway(url: str) -> bool:
    try:
        with HuggingGPT(url) as client:
            client.greet()
    except HuggingGPTError:
        return False
    return True

"""Checks of the configured LLM endpoints: availability, streaming, JSON schemas, context size, vision and tokens."""

import asyncio
import base64
import json
import logging
import secrets
import socket
import ssl
import struct
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

import httpx
import structlog
from pydantic import ValidationError
from pydantic_settings import SettingsError

from gateway.client import HuggingGPT, HuggingGPTError
from gateway.conformance.findings import Finding, Level
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_OPEN, Caller
from services.llm.client import LLM, LLMError, LLMErrorReason, Message, Schema, Usage
from services.llm.settings import LlmSettings

COUNTING = "Count from one to thirty in words, separated by spaces. Write nothing else."
CHOOSING = "Describe the sky on a clear day in one short sentence."
COLOURS = ("amber", "indigo", "teal")
COLOUR = Schema(
    "colour",
    {
        "type": "object",
        "properties": {"colour": {"type": "string", "enum": list(COLOURS)}},
        "required": ["colour"],
        "additionalProperties": False,
    },
)
"""A schema that no free answer to CHOOSING satisfies."""

PICTURE_COLOURS: Mapping[str, bytes] = {
    "red": b"\xff\x00\x00",
    "green": b"\x00\x80\x00",
    "blue": b"\x00\x00\xff",
    "yellow": b"\xff\xff\x00",
    "black": b"\x00\x00\x00",
    "white": b"\xff\xff\xff",
}
"""Colours of the picture that a model with vision has to name."""
SEEING = f"Which colour fills this picture: {', '.join(PICTURE_COLOURS)}? Answer with that word alone."
PICTURE_SIDE = 64

MAX_TOKENS_PER_SECOND = 3000.0
"""Rate above which an answer was generated completely before it was sent."""

LATE_SECONDS = 1.0
"""Delay of the first token from which a missing stream matters."""

SHORT_LINES, SAMPLE_LINES = 5, 100
SMALLEST_CONTEXT = 512
"""Minimum of LLM_CONTEXT_TOKENS."""

SUGGESTED_MODELS = 5
"""Models suggested for an unknown name."""

TRUNCATED_SHARE = 0.6
"""Share of the sent tokens below which the endpoint has truncated the prompt."""


async def probe_endpoint(settings: LlmSettings, subject: str) -> list[Finding]:
    """Checks an endpoint.

    Args:
        settings: settings with a base_url.
        subject: name of the endpoint in the findings.
    """
    async with LLM.open(settings, role="doctor") as llm:
        probe = Probe(settings, subject, llm)
        await probe.run()
    return probe.findings


class Probe:
    """Checks of one endpoint."""

    def __init__(self, settings: LlmSettings, subject: str, llm: LLM) -> None:
        self.findings: list[Finding] = []
        self._settings = settings
        self._subject = subject
        self._llm = llm
        self._used = Usage()
        self._requests = 0

    async def run(self) -> None:
        """Runs the checks until one shows that the endpoint is unusable."""
        names = await self._list_models()
        if names is None:
            return
        if await self._check_streaming(names):
            await self._check_schema()
            await self._check_context()
            await self._check_vision()
        self._report_policy()
        self._report_tokens()

    def _report(self, what: str, level: Level, found: str, remedy: str = "") -> None:
        self.findings.append(Finding(f"{self._subject} {what}".strip(), level, found, remedy))

    def _count(self, usage: Usage) -> None:
        self._used, self._requests = self._used + usage, self._requests + 1

    async def _list_models(self) -> list[str] | None:
        """Names of its models, empty if it does not list them; None if it is unreachable."""
        try:
            return await self._llm.models()
        except LLMError as error:
            if error.reason in {LLMErrorReason.DOWN, LLMErrorReason.SLOW}:
                self._report("", Level.WRONG, *_unreachable(self._settings, error))
                return None
            if url := await self._url_with_v1():
                self._report(
                    "",
                    Level.WRONG,
                    f"the endpoint is at {url}, not at {self._settings.base_url}",
                    f"set LLM_BASE_URL={url}",
                )
                return None
            return []

    async def _url_with_v1(self) -> str:
        """The URL with /v1 appended if the endpoint is there; empty otherwise."""
        url = f"{self._settings.base_url}/v1"
        try:
            async with LLM.open(self._settings.model_copy(update={"base_url": url}), role="doctor") as llm:
                return url if await llm.models() else ""
        except LLMError:
            return ""

    async def _check_streaming(self, names: Sequence[str]) -> bool:
        """Whether it answers at all."""
        start, arrivals = time.monotonic(), list[float]()
        try:
            async with self._llm.stream([Message("user", COUNTING)]) as reply:
                async for _ in reply:
                    arrivals.append(time.monotonic() - start)
        except LLMError as error:
            self._report("", Level.WRONG, *_refused(self._settings, error, names))
            return False
        self._count(reply.usage)
        unlisted = "" if self._settings.model in names else ", though the endpoint does not list it"
        self._report("", Level.OK, f"{self._settings.model} answers at {self._settings.base_url}{unlisted}")
        self._report("streaming", *_describe_streaming(arrivals, reply.usage.output_tokens))
        return True

    async def _check_schema(self) -> None:
        setting = self._settings.json_schema
        if setting == "off":
            self._report("schema", Level.OK, "not requested (LLM_JSON_SCHEMA=off): answers are parsed leniently")
            return
        # With "on", the client does not fall back to a call without a schema.
        strict = self._settings.model_copy(update={"json_schema": "on"})
        try:
            async with LLM.open(strict, role="doctor") as llm:
                reply = await llm.complete([Message("user", CHOOSING)], schema=COLOUR)
        except LLMError as error:
            level = Level.WRONG if setting == "on" or error.reason is not LLMErrorReason.REFUSED else Level.OK
            found = f"JSON schemas are not supported, {error}: answers are parsed leniently"
            self._report("schema", level, found, "set LLM_JSON_SCHEMA=auto" if setting == "on" else "")
            return
        self._count(reply.usage)
        if _is_colour(reply.text):
            self._report("schema", Level.OK, f"answers follow a JSON schema (LLM_JSON_SCHEMA={setting})")
        else:
            found = "a JSON schema is accepted but not followed: answers are parsed leniently"
            self._report("schema", Level.WARNING, found, "set LLM_JSON_SCHEMA=off, or try a newer server")

    async def _check_context(self) -> None:
        """Sends a prompt of the configured length and asks for a word of its first line."""
        budget = self._settings.context_tokens - self._settings.answer_tokens
        word = _random_word()
        text = _long_prompt(word, self._llm, budget)
        try:
            reply = await self._llm.complete([Message("user", text)])
        except LLMError as error:
            self._report("context", Level.WRONG, f"a prompt estimated at {budget} tokens: {error}", error.remedy)
            return
        self._count(reply.usage)
        if word in reply.text.lower():
            counted = f"the server counted {reply.usage.input_tokens}"
            self._report("context", Level.OK, f"a prompt estimated at {budget} tokens arrives complete; {counted}")
        elif await self._repeats_word():
            self._report(
                "context", Level.WRONG, *_describe_truncation(self._settings, budget, reply.usage.input_tokens)
            )
        else:
            found = (
                "cannot check for truncation of long prompts: the model does not repeat a word even of a short prompt"
            )
            self._report("context", Level.WARNING, found, "try another model")

    async def _repeats_word(self) -> bool:
        word = _random_word()
        try:
            reply = await self._llm.complete([Message("user", "\n".join(_lines(word, SHORT_LINES)))])
        except LLMError:
            return False
        self._count(reply.usage)
        return word in reply.text.lower()

    async def _check_vision(self) -> None:
        """Asks for the colour of a picture."""
        if not self._settings.vision:
            self._report("pictures", Level.OK, "none are sent to it", "if the model sees: LLM_VISION=true")
            return
        colour = secrets.choice(list(PICTURE_COLOURS))
        picture = f"data:image/png;base64,{base64.b64encode(_png(PICTURE_COLOURS[colour])).decode()}"
        remedy = "set LLM_VISION=false, or use a model with vision"
        try:
            reply = await self._llm.complete([Message("user", SEEING, (picture,))])
        except LLMError as error:
            self._report("pictures", Level.WRONG, f"a picture is not accepted: {error}", remedy)
            return
        self._count(reply.usage)
        if [name for name in PICTURE_COLOURS if name in reply.text.lower()] == [colour]:
            self._report("pictures", Level.OK, "it sees: it names the colour of a picture")
        else:
            self._report("pictures", Level.WRONG, f"it does not see that a picture is {colour}", remedy)

    def _report_policy(self) -> None:
        if self._settings.internal:
            found = "marked as part of the deployment (LLM_INTERNAL): it also gets requests of the policy local"
            self._report("data", Level.OK, found)
            return
        host = urlsplit(self._settings.base_url or "").hostname
        remedy = (
            "if it is part of the deployment: LLM_INTERNAL=true" if host in {"localhost", "127.0.0.1", "::1"} else ""
        )
        found = "external: with --policy local nothing is sent there, and runs work without an LLM"
        self._report("data", Level.OK, found, remedy)

    def _report_tokens(self) -> None:
        priced = self._settings.model in self._settings.prices
        cost = f", cost {self._used.cost:.4f}" if priced else ""
        found = f"{self._requests} requests used {self._used.input_tokens} prompt tokens"
        self._report("tokens", Level.OK, f"{found} and {self._used.output_tokens} answer tokens{cost}")


def _unreachable(settings: LlmSettings, error: LLMError) -> tuple[str, str]:
    """Why the endpoint is unreachable, and the remedy."""
    host = urlsplit(settings.base_url or "").hostname
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLError):
            why = getattr(cause, "verify_message", "") or cause.reason or "the handshake failed"
            remedy = "set SSL_CERT_FILE to the certificate of its authority; use http:// for a server without TLS"
            return f"no TLS connection to {settings.base_url}: {why}", remedy
        if isinstance(cause, socket.gaierror):
            return f"the host {host} of LLM_BASE_URL is unknown", "correct LLM_BASE_URL, or check DNS"
        if isinstance(cause, ConnectionRefusedError):
            return f"nothing listens at {settings.base_url}", "start the server, or correct LLM_BASE_URL"
    return f"{error}: {settings.base_url}", error.remedy


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes."""
    cause: BaseException | None = error
    while cause is not None:
        yield from cause.exceptions if isinstance(cause, BaseExceptionGroup) else [cause]
        cause = cause.__cause__ or cause.__context__


def _refused(settings: LlmSettings, error: LLMError, names: Sequence[str]) -> tuple[str, str]:
    """Why the endpoint refuses requests, and the remedy."""
    if error.reason is LLMErrorReason.REFUSED and names and settings.model not in names:
        near = get_close_matches(settings.model, names, SUGGESTED_MODELS, cutoff=0.4) or names[:SUGGESTED_MODELS]
        return (
            f"{settings.base_url} has no model {settings.model}",
            f"set LLM_MODEL to one of its models: {', '.join(near)}",
        )
    return f"{error}, at {settings.base_url}", error.remedy


def _describe_streaming(arrivals: Sequence[float], tokens: int) -> tuple[Level, str, str]:
    """Whether the answer was streamed, and how fast."""
    first, spread = arrivals[0], arrivals[-1] - arrivals[0]
    is_unstreamed = len(arrivals) == 1 or (first > LATE_SECONDS and spread < tokens / MAX_TOKENS_PER_SECOND)
    if is_unstreamed:
        found = f"the answer is not streamed but arrives after {first:.2f} s: tasks wait for the complete plan"
        return Level.WARNING, found, "check whether a proxy buffers the answers"
    speed = f"{(tokens - 1) / spread:.0f} tokens/s" if spread else "all at once"
    return Level.OK, f"first token after {first:.2f} s, then {speed}, in {len(arrivals)} chunks", ""


def _is_colour(text: str) -> bool:
    try:
        answer = json.loads(text)
    except ValueError:
        return False
    return isinstance(answer, dict) and answer.get("colour") in COLOURS


def _describe_truncation(settings: LlmSettings, sent: int, counted: int) -> tuple[str, str]:
    """Finding and remedy for an endpoint that truncates long prompts."""
    found, lower = f"a prompt estimated at {sent} tokens is truncated silently: its first line is lost", "lower"
    if counted < TRUNCATED_SHARE * sent:
        found += f"; the server counted {counted}"
        lower = f"to {counted}" if counted > max(settings.answer_tokens, SMALLEST_CONTEXT) else lower
    flags = "Ollama: OLLAMA_CONTEXT_LENGTH or num_ctx; llama.cpp: --ctx-size; vLLM: --max-model-len"
    return found, f"raise its context to {settings.context_tokens} tokens ({flags}), or set LLM_CONTEXT_TOKENS {lower}"


def _png(colour: bytes) -> bytes:
    """A square picture of one colour, in RGB."""
    rows = (b"\0" + colour * PICTURE_SIDE) * PICTURE_SIDE
    header = struct.pack(">IIBBBBB", PICTURE_SIDE, PICTURE_SIDE, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def _random_word() -> str:
    return "".join(secrets.choice("bdfgklmnprstv") + secrets.choice("aeiou") for _ in range(4))


def _long_prompt(word: str, llm: LLM, budget: int) -> str:
    """A text of at most `budget` estimated tokens, with the word in its first line."""
    count = budget * SAMPLE_LINES // llm.count_tokens("\n".join(_lines(word, SAMPLE_LINES)))
    while llm.count_tokens(text := "\n".join(_lines(word, count))) > budget and count:
        count -= 1 + count // 100
    return text


def _lines(word: str, count: int) -> list[str]:
    log = (
        f"{n}. At {n // 60 % 24:02}:{n % 60:02} the ferry left pier {n % 7 + 1} for the island." for n in range(count)
    )
    question = "What is the secret word in the first line of this message? Answer with that word alone."
    return [f"The secret word is {word}.", "", *log, "", question]


ROLES: Mapping[str, str] = {
    "planner": "the embedded planner plans",
    "selector": "models are chosen by rank",
    "responder": "answers are built from templates",
    "expert": "the other experts run all tasks",
}
"""Roles that can use an LLM, and what each does without one."""

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
    if len(roles) == len(ROLES):
        return "LLM"
    *others, last = roles
    return f"LLM of the {' and '.join((', '.join(others), last)) if others else last}"


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
    from services.common import call_context  # imports gRPC, which is slow

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

"""Proves an LLM's endpoint by asking it: what it can do, how fast, and whether long prompts arrive whole."""

import json
import secrets
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from urllib.parse import urlsplit

from gateway.cli.doctor_finding import Finding, Level
from services.llm.client import LLM, Message, Schema, Unusable, Usage, Why
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
"""What no model would write unless it is made to."""

FASTEST = 3000.0
"""Tokens per second: faster than this, an answer was written before it was sent."""

WAITED_SECONDS = 1.0
"""For the first token; sooner than that, it does not matter whether an answer was kept back."""

SHORT_LINES, SAMPLE_LINES = 5, 100
SMALLEST_CONTEXT = 512
"""What LLM_CONTEXT_TOKENS may be."""

NEAR = 5
"""How many names of models are told at most."""

MUCH_LESS = 0.6
"""Of the tokens sent: an endpoint that counts fewer has not seen them all."""


async def prove(settings: LlmSettings, subject: str) -> list[Finding]:
    """What was found of an endpoint.

    Args:
        settings: with a base_url.
        subject: what findings call it.
    """
    async with LLM.opened(settings, role="doctor") as llm:
        probe = Probe(settings, subject, llm)
        await probe.examine()
    return probe.findings


class Probe:
    """One examination."""

    def __init__(self, settings: LlmSettings, subject: str, llm: LLM) -> None:
        self.findings: list[Finding] = []
        self._settings = settings
        self._subject = subject
        self._llm = llm
        self._used = Usage()
        self._asked = 0

    async def examine(self) -> None:
        """Asks as long as there are answers."""
        names = await self._listed()
        if names is None:
            return
        if await self._streams(names):
            await self._keeps_to_a_schema()
            await self._takes_what_it_is_sent()
        self._say_policy()
        self._say_tokens()

    def _say(self, what: str, level: Level, found: str, remedy: str = "") -> None:
        self.findings.append(Finding(f"{self._subject} {what}".strip(), level, found, remedy))

    def _count(self, usage: Usage) -> None:
        self._used, self._asked = self._used + usage, self._asked + 1

    async def _listed(self) -> list[str] | None:
        """Names of its models, none if it does not tell them; None if there is nobody to ask."""
        try:
            return await self._llm.models()
        except Unusable as error:
            if error.why in {Why.DOWN, Why.SLOW}:
                self._say("", Level.WRONG, *_unreachable(self._settings, error))
                return None
            if url := await self._under_v1():
                self._say(
                    "",
                    Level.WRONG,
                    f"the endpoint is at {url}, not at {self._settings.base_url}",
                    f"set LLM_BASE_URL={url}",
                )
                return None
            return []

    async def _under_v1(self) -> str:
        """The address with /v1 at its end, if that is the right one."""
        url = f"{self._settings.base_url}/v1"
        try:
            async with LLM.opened(self._settings.model_copy(update={"base_url": url}), role="doctor") as llm:
                return url if await llm.models() else ""
        except Unusable:
            return ""

    async def _streams(self, names: Sequence[str]) -> bool:
        """Whether it answers at all."""
        begun, moments = time.monotonic(), list[float]()
        try:
            async with self._llm.stream([Message("user", COUNTING)]) as reply:
                async for _ in reply:
                    moments.append(time.monotonic() - begun)
        except Unusable as error:
            self._say("", Level.WRONG, *_refused(self._settings, error, names))
            return False
        self._count(reply.usage)
        unlisted = "" if self._settings.model in names else ", though the endpoint does not list it"
        self._say("", Level.OK, f"{self._settings.model} answers at {self._settings.base_url}{unlisted}")
        self._say("streaming", *_pace(moments, reply.usage.output_tokens))
        return True

    async def _keeps_to_a_schema(self) -> None:
        wanted = self._settings.json_schema
        if wanted == "off":
            self._say("schema", Level.OK, "not asked for (LLM_JSON_SCHEMA=off): answers are read tolerantly")
            return
        # Told to insist, the client does not do without a schema that is refused.
        insisting = self._settings.model_copy(update={"json_schema": "on"})
        try:
            async with LLM.opened(insisting, role="doctor") as llm:
                reply = await llm.complete([Message("user", CHOOSING)], schema=COLOUR)
        except Unusable as error:
            level = Level.WRONG if wanted == "on" or error.why is not Why.REFUSED else Level.OK
            found = f"JSON schemas are not taken, {error}: answers are read tolerantly"
            self._say("schema", level, found, "set LLM_JSON_SCHEMA=auto" if wanted == "on" else "")
            return
        self._count(reply.usage)
        if _is_colour(reply.text):
            self._say("schema", Level.OK, f"answers keep to a JSON schema (LLM_JSON_SCHEMA={wanted})")
        else:
            found = "a JSON schema is taken and not kept to: answers are read tolerantly"
            self._say("schema", Level.WARNING, found, "LLM_JSON_SCHEMA=off saves sending it; or try a newer server")

    async def _takes_what_it_is_sent(self) -> None:
        """Sends a prompt as long as those of the house may be, whose first line has to come back."""
        budget = self._settings.context_tokens - self._settings.answer_tokens
        word = _word()
        text = _filled(word, self._llm, budget)
        try:
            reply = await self._llm.complete([Message("user", text)])
        except Unusable as error:
            self._say("context", Level.WRONG, f"a prompt estimated at {budget} tokens: {error}", error.remedy)
            return
        self._count(reply.usage)
        if word in reply.text.lower():
            counted = f"the server counted {reply.usage.input_tokens}"
            self._say("context", Level.OK, f"a prompt estimated at {budget} tokens arrives whole; {counted}")
        elif await self._repeats_a_word():
            self._say("context", Level.WRONG, *_cut(self._settings, budget, reply.usage.input_tokens))
        else:
            found = (
                "whether long prompts arrive whole cannot be told: the model does not repeat a word even of a short one"
            )
            self._say("context", Level.WARNING, found, "try another model")

    async def _repeats_a_word(self) -> bool:
        word = _word()
        try:
            reply = await self._llm.complete([Message("user", "\n".join(_lines(word, SHORT_LINES)))])
        except Unusable:
            return False
        self._count(reply.usage)
        return word in reply.text.lower()

    def _say_policy(self) -> None:
        if self._settings.internal:
            found = (
                "marked as part of the house (LLM_INTERNAL): requests whose data may not leave it are sent there too"
            )
            self._say("data", Level.OK, found)
            return
        host = urlsplit(self._settings.base_url or "").hostname
        remedy = "if it belongs to the house: LLM_INTERNAL=true" if host in {"localhost", "127.0.0.1", "::1"} else ""
        found = "outside the house: with --policy local nothing is sent there, and it is done without an LLM"
        self._say("data", Level.OK, found, remedy)

    def _say_tokens(self) -> None:
        priced = self._settings.model in self._settings.prices
        cost = f", which cost {self._used.cost:.4f}" if priced else ""
        found = f"{self._asked} questions took {self._used.input_tokens} tokens of prompt"
        self._say("tokens", Level.OK, f"{found} and {self._used.output_tokens} of answers{cost}")


def _unreachable(settings: LlmSettings, error: Unusable) -> tuple[str, str]:
    """What is wrong with the way there, and what helps."""
    host = urlsplit(settings.base_url or "").hostname
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLError):
            why = getattr(cause, "verify_message", "") or cause.reason or "the handshake failed"
            remedy = (
                "name its authority's certificate in SSL_CERT_FILE; a server without TLS has an address with http://"
            )
            return f"no TLS connection to {settings.base_url}: {why}", remedy
        if isinstance(cause, socket.gaierror):
            return f"the host {host} of LLM_BASE_URL is not known", "correct LLM_BASE_URL, or see the name service"
        if isinstance(cause, ConnectionRefusedError):
            return f"nothing listens at {settings.base_url}", "start its server, or correct LLM_BASE_URL"
    return f"{error}: {settings.base_url}", error.remedy


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what it came from."""
    cause: BaseException | None = error
    while cause is not None:
        yield from cause.exceptions if isinstance(cause, BaseExceptionGroup) else [cause]
        cause = cause.__cause__ or cause.__context__


def _refused(settings: LlmSettings, error: Unusable, names: Sequence[str]) -> tuple[str, str]:
    """Why it does not answer, and what helps."""
    if error.why is Why.REFUSED and names and settings.model not in names:
        near = get_close_matches(settings.model, names, NEAR, cutoff=0.4) or names[:NEAR]
        return f"{settings.base_url} has no model {settings.model}", f"set LLM_MODEL to one of its: {', '.join(near)}"
    return f"{error}, at {settings.base_url}", error.remedy


def _pace(moments: Sequence[float], tokens: int) -> tuple[Level, str, str]:
    """Whether the answer came while it was written, and how fast."""
    first, spread = moments[0], moments[-1] - moments[0]
    at_once = len(moments) == 1 or (first > WAITED_SECONDS and spread < tokens / FASTEST)
    if at_once:
        found = f"the answer comes at once, after {first:.2f} s: tasks cannot start while the plan is written"
        return Level.WARNING, found, "see whether a proxy before it keeps answers back"
    speed = f"{(tokens - 1) / spread:.0f} tokens/s" if spread else "all at once"
    return Level.OK, f"first token after {first:.2f} s, then {speed}, in {len(moments)} pieces", ""


def _is_colour(text: str) -> bool:
    try:
        answer = json.loads(text)
    except ValueError:
        return False
    return isinstance(answer, dict) and answer.get("colour") in COLOURS


def _cut(settings: LlmSettings, sent: int, counted: int) -> tuple[str, str]:
    """What is said of an endpoint that does not see the beginning of long prompts."""
    found, lower = f"a prompt estimated at {sent} tokens is cut silently: its first line does not come back", "lower"
    if counted < MUCH_LESS * sent:
        found += f"; the server counted {counted}"
        lower = f"to {counted}" if counted > max(settings.answer_tokens, SMALLEST_CONTEXT) else lower
    flags = "Ollama: OLLAMA_CONTEXT_LENGTH or num_ctx; llama.cpp: --ctx-size; vLLM: --max-model-len"
    return found, f"let it take {settings.context_tokens} tokens ({flags}), or set LLM_CONTEXT_TOKENS {lower}"


def _word() -> str:
    return "".join(secrets.choice("bdfgklmnprstv") + secrets.choice("aeiou") for _ in range(4))


def _filled(word: str, llm: LLM, budget: int) -> str:
    """A text of about so many tokens, and no more, as they are estimated; its first line holds the word."""
    count = budget * SAMPLE_LINES // llm.tokens("\n".join(_lines(word, SAMPLE_LINES)))
    while llm.tokens(text := "\n".join(_lines(word, count))) > budget and count:
        count -= 1 + count // 100
    return text


def _lines(word: str, count: int) -> list[str]:
    log = (
        f"{n}. At {n // 60 % 24:02}:{n % 60:02} the ferry left pier {n % 7 + 1} for the island." for n in range(count)
    )
    asked = "What is the secret word in the first line of this message? Answer with that word alone."
    return [f"The secret word is {word}.", "", *log, "", asked]

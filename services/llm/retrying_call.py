"""One call of an LLM: whether it may be made, its turns and retries, and the account of it."""

import asyncio
import json
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random_exponential

from services.common import call_context
from services.llm.endpoint_capabilities import Ask
from services.llm.endpoints import Known
from services.llm.llm_error import Unusable, Why
from services.llm.reply import Reply
from services.llm.request import Connection, Exchange
from services.llm.settings import LlmSettings
from services.llm.timeouts import Patience
from services.llm.tracing import Trace
from services.llm.usage import Usage, cost

LONGEST_PAUSE_SECONDS = 8.0


@dataclass(frozen=True)
class Line:
    """A model at an endpoint, as one role has it open."""

    settings: LlmSettings
    role: str
    connection: Connection
    slots: asyncio.Semaphore
    known: Known


class Call:
    """Entered, waits for the first text of an answer; left, hangs up and settles the account."""

    def __init__(self, line: Line, ask: Ask, within: float | None) -> None:
        self._line = line
        self._ask = ask
        self._within = within
        self._held = AsyncExitStack()
        self._exchange: Exchange | None = None
        self._busy = 0.0

    async def __aenter__(self) -> Reply:
        self._check_allowed()
        self._begun = time.monotonic()
        self._patience = Patience(self._line.settings, self._within)
        self._trace = Trace(self._line.settings, self._line.role, self._ask)
        try:
            exchange: Exchange = await self._retrying()(self._attempt)
        except BaseException as error:
            self._settle(error)
            raise
        self._exchange, self._reply = exchange, Reply(exchange, self._usage)
        self._trace.began(time.monotonic() - self._begun)
        return self._reply

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._held.aclose()
        finally:
            self._settle(error)

    def _check_allowed(self) -> None:
        settings = self._line.settings
        if not settings.internal and not call_context.allows_external_endpoints():
            raise Unusable(
                Why.POLICY,
                f"the data of this request may not leave the house, and the LLM {settings.model} is outside",
                remedy="if its endpoint belongs to the house, set LLM_INTERNAL=true",
            )
        if not self._line.known.breaker.admits():
            raise self._left_alone()

    def _left_alone(self) -> Unusable:
        breaker, model = self._line.known.breaker, self._line.settings.model
        return Unusable(
            Why.OPEN,
            f"the LLM {model} is left alone for {breaker.seconds_left():.0f} s more: {breaker.reason}",
            remedy="mend what it failed of; it is tried again by itself",
            blames=False,
        )

    def _retrying(self) -> AsyncRetrying:
        backoff = wait_random_exponential(multiplier=self._line.settings.retry_seconds, max=LONGEST_PAUSE_SECONDS)

        def pause(state: RetryCallState) -> float:
            error = state.outcome.exception() if state.outcome else None
            return max(backoff(state), error.after if isinstance(error, Unusable) else 0.0)

        def enough(state: RetryCallState) -> bool:
            too_late = state.upcoming_sleep >= self._patience.left
            return too_late or state.attempt_number >= self._line.settings.attempts

        def note(state: RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            if isinstance(error, Unusable):
                self._trace.failed(error, state.upcoming_sleep)

        again = retry_if_exception(lambda error: isinstance(error, Unusable) and error.again)
        return AsyncRetrying(retry=again, wait=pause, stop=enough, before_sleep=note, reraise=True)

    async def _attempt(self) -> Exchange:
        """One request, in its turn; what it holds is given back unless text comes."""
        async with AsyncExitStack() as stack:
            async with self._patience.queueing():
                await stack.enter_async_context(self._line.slots)
            if self._line.known.breaker.shut:
                raise self._left_alone()
            self._patience.heard()
            sent = time.monotonic()
            try:
                exchange = await self._line.connection.ask(self._ask, self._line.known.dialect, self._patience)
            except BaseException:
                self._busy += time.monotonic() - sent
                raise
            exchange.begun = sent
            stack.push_async_callback(exchange.close)
            self._held = stack.pop_all()
            return exchange

    def _usage(self, text: str) -> Usage:
        settings, estimate, exchange = self._line.settings, self._line.known.estimate, self._exchange
        now = (exchange and exchange.ended) or time.monotonic()
        reported = exchange.reported if exchange else None
        taken, given = reported or (estimate.prompt(self._ask.messages), estimate.tokens(text))
        return Usage(
            input_tokens=taken,
            output_tokens=given,
            cost=cost(settings.prices.get(settings.model), taken, given),
            busy_seconds=self._busy + (now - exchange.begun if exchange else 0.0),
            elapsed_seconds=now - self._begun,
        )

    def _settle(self, error: BaseException | None) -> None:
        known, exchange = self._line.known, self._exchange
        if isinstance(error, Unusable) and error.blames:
            known.breaker.failed(str(error))
        elif exchange:
            known.breaker.succeeded()
        else:
            known.breaker.left()
        if exchange:
            self._trace.answered(exchange.model, exchange.finish, self._usage(self._reply.text))
            self._learn(exchange)
        self._trace.ended(error)

    def _learn(self, exchange: Exchange) -> None:
        if exchange.reported and exchange.reported[0] > 0:
            beside = json.dumps(dict(self._ask.schema.json_schema)) if self._ask.schema else ""
            self._line.known.estimate.learn(self._ask.messages, exchange.reported[0], beside=beside)

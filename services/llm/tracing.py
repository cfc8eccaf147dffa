"""Span, metrics and log of an LLM call, per OpenTelemetry's conventions for generative AI; without content."""

import time
from urllib.parse import urlsplit

import structlog
from opentelemetry import metrics, trace

from protos.hugginggpt import semantic_conventions as names
from services.llm.client import Usage
from services.llm.endpoint_capabilities import ChatRequest
from services.llm.errors import LLMError
from services.llm.settings import LlmSettings

log = structlog.get_logger(__name__)

_meter = metrics.get_meter("hugginggpt.llm")
_seconds = _meter.create_histogram(
    names.LLM_SECONDS, unit="s", description="Duration of LLM calls, by model, role and error."
)
_first = _meter.create_histogram(
    names.LLM_FIRST_CHUNK, unit="s", description="Time until the first text of an answer, by model and role."
)
_tokens = _meter.create_histogram(
    names.LLM_TOKENS,
    unit="{token}",
    description="Tokens of LLM calls, by model, role and type: input or output.",
    explicit_bucket_boundaries_advisory=[4**power for power in range(11)],
)
_cost = _meter.create_counter(
    "llm_cost", description="Cost of LLM calls, by model and role, in the currency of the price table."
)


class Trace:
    """Span of one call; starts with the object."""

    def __init__(self, settings: LlmSettings, role: str, request: ChatRequest) -> None:
        address = urlsplit(settings.base_url or "")
        attributes: dict[str, str | float] = {
            names.OPERATION: names.CHAT,
            names.PROVIDER: "openai",
            names.REQUEST_MODEL: settings.model,
            names.ROLE: role,
            names.TEMPERATURE: settings.temperature,
            names.MAX_TOKENS: request.answer_tokens,
            names.STREAM: True,
            names.OUTPUT_TYPE: "json" if request.schema else "text",
            names.SERVER: address.hostname or "",
        }
        if address.port:
            attributes[names.SERVER_PORT] = address.port
        self._model = settings.model
        self._began = time.monotonic()
        self._labels = {names.OPERATION: names.CHAT, names.REQUEST_MODEL: settings.model, names.ROLE: role}
        self._result: dict[str, object] = {}
        self._span = trace.get_tracer(__name__).start_span(
            names.span_name(names.CHAT, settings.model), kind=trace.SpanKind.CLIENT, attributes=attributes
        )

    def first_text(self, seconds: float) -> None:
        """Records the time until the first text."""
        self._span.set_attribute(names.FIRST_CHUNK, seconds)
        _first.record(seconds, self._labels)

    def attempt_failed(self, error: LLMError, pause: float) -> None:
        """Records a failed attempt, and the pause before the next one in seconds."""
        self._span.add_event(names.ATTEMPT_FAILED, {names.ERROR: error.reason.name, names.DELAY: pause})

    def answered(self, model: str, finish: str | None, usage: Usage) -> None:
        """Records a complete or partial answer."""
        self._span.set_attributes(
            {
                names.RESPONSE_MODEL: model,
                names.FINISH_REASONS: [finish] if finish else [],
                names.INPUT_TOKENS: usage.input_tokens,
                names.OUTPUT_TOKENS: usage.output_tokens,
                names.COST: usage.cost,
            }
        )
        _tokens.record(usage.input_tokens, {**self._labels, names.TOKEN_TYPE: "input"})
        _tokens.record(usage.output_tokens, {**self._labels, names.TOKEN_TYPE: "output"})
        _cost.add(usage.cost, self._labels)
        self._result = {
            "finish": finish,
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cost": usage.cost,
            "seconds": round(usage.elapsed_seconds, 3),
        }

    def ended(self, error: BaseException | None) -> None:
        """Ends the span; the error is that of the call, if it failed."""
        label = {names.ERROR: error.reason.name if isinstance(error, LLMError) else "CANCELLED"} if error else {}
        _seconds.record(time.monotonic() - self._began, {**self._labels, **label})
        if isinstance(error, LLMError):
            self._span.set_attribute(names.ERROR, error.reason.name)
            self._span.set_status(trace.StatusCode.ERROR, str(error))
            log.warning("LLM call failed", model=self._model, reason=error.reason.name, error=str(error))
        else:
            log.debug("LLM call completed", model=self._model, **self._result)
        self._span.end()

"""What traces and logs say of a call, in the names of OpenTelemetry's conventions for generative AI; never content."""

import time
from urllib.parse import urlsplit

import structlog
from opentelemetry import metrics, trace

from protos.hugginggpt import semantic_conventions as names
from services.llm.endpoint_capabilities import Ask
from services.llm.llm_error import Unusable
from services.llm.settings import LlmSettings
from services.llm.usage import Usage

log = structlog.get_logger(__name__)

_meter = metrics.get_meter("hugginggpt.llm")
_seconds = _meter.create_histogram(names.LLM_SECONDS, unit="s", description="Calls of LLMs, by model, role and error.")
_first = _meter.create_histogram(
    names.LLM_FIRST_CHUNK, unit="s", description="Until the first text of an answer came, by model and role."
)
_tokens = _meter.create_histogram(
    names.LLM_TOKENS,
    unit="{token}",
    description="Tokens of calls of LLMs, by model, role and type: input or output.",
    explicit_bucket_boundaries_advisory=[4**power for power in range(11)],
)
_cost = _meter.create_counter(
    "llm_cost", description="Cost of calls of LLMs, by model and role, in the price table's currency."
)


class Trace:
    """The span of one call, from now on."""

    def __init__(self, settings: LlmSettings, role: str, ask: Ask) -> None:
        address = urlsplit(settings.base_url or "")
        attributes: dict[str, str | float] = {
            names.OPERATION: names.CHAT,
            names.PROVIDER: "openai",
            names.REQUEST_MODEL: settings.model,
            names.ROLE: role,
            names.TEMPERATURE: settings.temperature,
            names.MAX_TOKENS: ask.answer_tokens,
            names.STREAM: True,
            names.OUTPUT_TYPE: "json" if ask.schema else "text",
            names.SERVER: address.hostname or "",
        }
        if address.port:
            attributes[names.SERVER_PORT] = address.port
        self._model = settings.model
        self._began = time.monotonic()
        self._labels = {names.OPERATION: names.CHAT, names.REQUEST_MODEL: settings.model, names.ROLE: role}
        self._facts: dict[str, object] = {}
        self._span = trace.get_tracer(__name__).start_span(
            names.span_name(names.CHAT, settings.model), kind=trace.SpanKind.CLIENT, attributes=attributes
        )

    def began(self, seconds: float) -> None:
        """Notes how long the first text took to come."""
        self._span.set_attribute(names.FIRST_CHUNK, seconds)
        _first.record(seconds, self._labels)

    def failed(self, error: Unusable, pause: float) -> None:
        """Notes an attempt that failed and is followed by another after a pause."""
        self._span.add_event(names.ATTEMPT_FAILED, {names.ERROR: error.why.name, names.DELAY: pause})

    def answered(self, model: str, finish: str | None, usage: Usage) -> None:
        """Notes what came, whole or in part."""
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
        self._facts = {
            "finish": finish,
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cost": usage.cost,
            "seconds": round(usage.elapsed_seconds, 3),
        }

    def ended(self, error: BaseException | None) -> None:
        """Closes the span."""
        wrong = {names.ERROR: error.why.name if isinstance(error, Unusable) else "CANCELLED"} if error else {}
        _seconds.record(time.monotonic() - self._began, {**self._labels, **wrong})
        if isinstance(error, Unusable):
            self._span.set_attribute(names.ERROR, error.why.name)
            self._span.set_status(trace.StatusCode.ERROR, str(error))
            log.warning("an LLM is unusable", model=self._model, why=error.why.name, error=str(error))
        else:
            log.debug("an LLM was asked", model=self._model, **self._facts)
        self._span.end()

"""What traces and logs say of a call, in the names of OpenTelemetry's conventions for generative AI; never content."""

from urllib.parse import urlsplit

import structlog
from opentelemetry import trace

from services.llm.dialect import Ask
from services.llm.settings import LlmSettings
from services.llm.unusable import Unusable
from services.llm.usage import Usage
from services.runtime import conventions as names

log = structlog.get_logger(__name__)


class Trace:
    """The span of one call, from now on."""

    def __init__(self, settings: LlmSettings, ask: Ask) -> None:
        address = urlsplit(settings.base_url or "")
        attributes: dict[str, str | float] = {
            names.OPERATION: names.CHAT,
            names.PROVIDER: "openai",
            names.REQUEST_MODEL: settings.model,
            names.TEMPERATURE: settings.temperature,
            names.MAX_TOKENS: ask.answer_tokens,
            names.STREAM: True,
            names.OUTPUT_TYPE: "json" if ask.schema else "text",
            names.SERVER: address.hostname or "",
        }
        if address.port:
            attributes[names.SERVER_PORT] = address.port
        self._model = settings.model
        self._facts: dict[str, object] = {}
        self._span = trace.get_tracer(__name__).start_span(
            names.named(names.CHAT, settings.model), kind=trace.SpanKind.CLIENT, attributes=attributes
        )

    def began(self, seconds: float) -> None:
        """Notes how long the first text took to come."""
        self._span.set_attribute(names.FIRST_CHUNK, seconds)

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
        self._facts = {
            "finish": finish,
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cost": usage.cost,
            "seconds": round(usage.elapsed_seconds, 3),
        }

    def ended(self, error: BaseException | None) -> None:
        """Closes the span."""
        if isinstance(error, Unusable):
            self._span.set_attribute(names.ERROR, error.why.name)
            self._span.set_status(trace.StatusCode.ERROR, str(error))
            log.warning("an LLM is unusable", model=self._model, why=error.why.name, error=str(error))
        else:
            log.debug("an LLM was asked", model=self._model, **self._facts)
        self._span.end()

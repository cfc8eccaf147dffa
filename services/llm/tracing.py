"""What traces and logs say of a call, in the names of OpenTelemetry's conventions for generative AI; never content."""

from urllib.parse import urlsplit

import structlog
from opentelemetry import trace

from services.llm.dialect import Ask
from services.llm.settings import LlmSettings
from services.llm.unusable import Unusable
from services.llm.usage import Usage

log = structlog.get_logger(__name__)


class Trace:
    """The span of one call, from now on."""

    def __init__(self, settings: LlmSettings, ask: Ask) -> None:
        address = urlsplit(settings.base_url or "")
        attributes: dict[str, str | float] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": settings.model,
            "gen_ai.request.temperature": settings.temperature,
            "gen_ai.request.max_tokens": ask.answer_tokens,
            "gen_ai.output.type": "json" if ask.schema else "text",
            "server.address": address.hostname or "",
        }
        if address.port:
            attributes["server.port"] = address.port
        self._model = settings.model
        self._facts: dict[str, object] = {}
        self._span = trace.get_tracer(__name__).start_span(
            f"chat {settings.model}", kind=trace.SpanKind.CLIENT, attributes=attributes
        )

    def answered(self, model: str, finish: str | None, usage: Usage) -> None:
        """Notes what came, whole or in part."""
        self._span.set_attributes(
            {
                "gen_ai.response.model": model,
                "gen_ai.response.finish_reasons": [finish] if finish else [],
                "gen_ai.usage.input_tokens": usage.input_tokens,
                "gen_ai.usage.output_tokens": usage.output_tokens,
                "hugginggpt.usage.cost": usage.cost,
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
            self._span.set_attribute("error.type", error.why.name)
            self._span.set_status(trace.StatusCode.ERROR, str(error))
            log.warning("an LLM is unusable", model=self._model, why=error.why.name, error=str(error))
        else:
            log.debug("an LLM was asked", model=self._model, **self._facts)
        self._span.end()

"""Translates HTTP error responses of endpoints into service errors."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from time import time

from services.common.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    ModelFailed,
    NotFound,
    Overloaded,
    ServiceError,
    Unavailable,
)

_MAX_LENGTH = 300
_SECRET = re.compile(r"\b(?:hf_|sk-)[\w-]{4,}")
_SMALLER_INPUT = "send a smaller input, or use another model"
_BAD_INPUT = frozenset({400, 413, 415, 422})
_TIMEOUTS = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.GATEWAY_TIMEOUT})


class PaymentRequired(FailedPrecondition):
    """The account of the model's provider has no credit."""


@dataclass(frozen=True)
class ErrorResponse:
    """An HTTP response with an error status."""

    model_id: str
    endpoint_name: str
    """Name of the endpoint or provider, for messages."""
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    """Names in lower case."""
    body: str = ""
    key_remedy: str = ""
    """Remedy if the key is refused."""
    terms_url: str = ""
    """Page with the model's conditions."""
    key: str = ""
    """API key of the request, removed from messages."""

    def to_error(self) -> ServiceError:
        """Returns the service error that corresponds to the response."""
        status = self.status
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            return self._access_error()
        if status == HTTPStatus.PAYMENT_REQUIRED:
            message = f"{self.endpoint_name} requires payment to run {self.model_id}"
            remedy = "add credit to the account there, or use another provider or model"
            return PaymentRequired(message, reason="LOAD_FAILED", remedy=remedy)
        if status == HTTPStatus.NOT_FOUND:
            message = f"{self.endpoint_name} has no model {self.model_id}"
            return NotFound(message, reason="MODEL", remedy="use another model, or correct its name")
        if (
            status in _BAD_INPUT
        ):  # not INVALID_ARGUMENT: the input is valid for the task, and another model may accept it
            return ModelFailed(f"{self.model_id} cannot process this input: {self._message()}", remedy=_SMALLER_INPUT)
        return self._temporary_error()

    def _access_error(self) -> FailedPrecondition:
        gated = "gated" in self.body.lower()
        message = f"{self.model_id} is gated" if gated else f"{self.endpoint_name} refuses the key for {self.model_id}"
        remedy = (
            f"accept its conditions at {self.terms_url}; {self.key_remedy}"
            if gated and self.terms_url
            else self.key_remedy
        )
        return FailedPrecondition(message, reason="LOAD_FAILED", remedy=remedy)

    def _temporary_error(self) -> ServiceError:
        after, model = self._retry_after(), self.model_id
        if self.status == HTTPStatus.TOO_MANY_REQUESTS:
            remedy = "try again later, or request a higher limit from its provider"
            return Overloaded(
                f"{self.endpoint_name} limits the request rate of {model}", remedy=remedy, retry_after=after
            )
        if self.status in _TIMEOUTS:
            return DeadlineExceeded(f"{self.endpoint_name} did not finish {model} in time", remedy=_SMALLER_INPUT)
        if self.status == HTTPStatus.INTERNAL_SERVER_ERROR:
            return ModelFailed(f"{model} failed on this input: {self._message()}", remedy="try another input or model")
        if self.status > HTTPStatus.INTERNAL_SERVER_ERROR:
            state = "is still loading" if self._load_seconds() else f"is unavailable (HTTP status {self.status})"
            return Unavailable(
                f"{model} {state} at {self.endpoint_name}", remedy="try again shortly", retry_after=after
            )
        return ModelFailed(
            f"{self.endpoint_name} answers for {model} with HTTP status {self.status}", remedy="see its log"
        )

    def _retry_after(self) -> timedelta | None:
        seconds = _parse_seconds(self.headers.get("retry-after", "")) or self._load_seconds()
        return timedelta(seconds=min(seconds, 24 * 3600.0)) if seconds else None

    def _load_seconds(self) -> float:
        """Returns the remaining load time that the response states; 0 if none."""
        reply = self._parse_body()
        return _parse_seconds(str(reply.get("estimated_time", ""))) if isinstance(reply, dict) else 0.0

    def _message(self) -> str:
        """Returns the error message of the response, shortened and without secrets."""
        reply = self._parse_body()
        while isinstance(reply, dict):
            reply = next((reply[key] for key in ("error", "message", "detail") if key in reply), "")
        if isinstance(reply, list):
            reply = reply[0] if reply else ""
        text = reply if isinstance(reply, str) and reply else f"HTTP status {self.status}"
        return redact_secrets(text, self.key)[:_MAX_LENGTH]

    def _parse_body(self) -> object:
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


def redact_secrets(text: str, key: str = "") -> str:
    """Returns the text on one line, without the key and anything that looks like one."""
    line = " ".join(text.split())
    return _SECRET.sub("…", line.replace(key, "…") if key else line)


def _parse_seconds(text: str) -> float:
    """Parses seconds from a number or an HTTP date; 0 if it is neither."""
    try:
        number = float(text)
    except ValueError:
        try:
            number = parsedate_to_datetime(text).timestamp() - time()
        except ValueError:
            return 0.0
    return max(0.0, number) if number < float("inf") else 0.0

"""What the HTTP status of an endpoint means to a caller."""

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

_LONGEST = 300
_SECRET = re.compile(r"\b(?:hf_|sk-)[\w-]{4,}")
_TOO_MUCH = "send a smaller input, or take another model"
_CANNOT_TAKE = frozenset({400, 413, 415, 422})
_LATE = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.GATEWAY_TIMEOUT})


class PaidOut(FailedPrecondition):
    """Whoever runs the model wants money first."""


@dataclass(frozen=True)
class Refusal:
    """An answer that is none."""

    model_id: str
    where: str
    """Who answered, in words."""
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    """Names in lower case."""
    body: str = ""
    access: str = ""
    """What helps where the key is refused."""
    page: str = ""
    """Where the model's conditions stand."""
    key: str = ""
    """What it was asked with, lest the answer repeat it."""

    def error(self) -> ServiceError:
        """The refusal as callers understand it."""
        status = self.status
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            return self._no_access()
        if status == HTTPStatus.PAYMENT_REQUIRED:
            what = f"{self.where} wants to be paid before it runs {self.model_id}"
            return PaidOut(what, reason="LOAD_FAILED", remedy="add credit there, or take another provider or model")
        if status == HTTPStatus.NOT_FOUND:
            what = f"{self.where} has no model {self.model_id}"
            return NotFound(what, reason="MODEL", remedy="take another model, or correct its name")
        if status in _CANNOT_TAKE:  # no INVALID_ARGUMENT: it is right for its task, and another model may take it
            return ModelFailed(f"{self.model_id} cannot take this input: {self._said()}", remedy=_TOO_MUCH)
        return self._for_now()

    def _no_access(self) -> FailedPrecondition:
        gated = "gated" in self.body.lower()
        what = f"{self.model_id} is gated" if gated else f"{self.where} refuses the key for {self.model_id}"
        remedy = f"accept its conditions at {self.page}; {self.access}" if gated and self.page else self.access
        return FailedPrecondition(what, reason="LOAD_FAILED", remedy=remedy)

    def _for_now(self) -> ServiceError:
        after, model = self._after(), self.model_id
        if self.status == HTTPStatus.TOO_MANY_REQUESTS:
            remedy = "try again later, or ask its provider for a higher limit"
            return Overloaded(f"{self.where} takes no more requests for {model} now", remedy=remedy, retry_after=after)
        if self.status in _LATE:
            return DeadlineExceeded(f"{self.where} did not finish {model} in time", remedy=_TOO_MUCH)
        if self.status == HTTPStatus.INTERNAL_SERVER_ERROR:
            return ModelFailed(f"{model} failed on this input: {self._said()}", remedy="try another input or model")
        if self.status > HTTPStatus.INTERNAL_SERVER_ERROR:
            doing = "is still loading" if self._estimated() else f"is not there now (HTTP status {self.status})"
            return Unavailable(f"{model} {doing} at {self.where}", remedy="try again shortly", retry_after=after)
        return ModelFailed(f"{self.where} answers for {model} with HTTP status {self.status}", remedy="see its log")

    def _after(self) -> timedelta | None:
        seconds = _seconds(self.headers.get("retry-after", "")) or self._estimated()
        return timedelta(seconds=min(seconds, 24 * 3600.0)) if seconds else None

    def _estimated(self) -> float:
        """Seconds that a model says it still needs to load."""
        said = self._json()
        return _seconds(str(said.get("estimated_time", ""))) if isinstance(said, dict) else 0.0

    def _said(self) -> str:
        """What it complains of, short and without secrets."""
        said = self._json()
        while isinstance(said, dict):
            said = next((said[key] for key in ("error", "message", "detail") if key in said), "")
        if isinstance(said, list):
            said = said[0] if said else ""
        text = said if isinstance(said, str) and said else f"HTTP status {self.status}"
        return without_secrets(text, self.key)[:_LONGEST]

    def _json(self) -> object:
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


def without_secrets(text: str, key: str = "") -> str:
    """The text in one line, without the key and what looks like one."""
    line = " ".join(text.split())
    return _SECRET.sub("…", line.replace(key, "…") if key else line)


def _seconds(text: str) -> float:
    """Of a number or a date; 0 if it is neither."""
    try:
        number = float(text)
    except ValueError:
        try:
            number = parsedate_to_datetime(text).timestamp() - time()
        except ValueError:
            return 0.0
    return max(0.0, number) if number < float("inf") else 0.0

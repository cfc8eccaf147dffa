"""Settings of the LLM endpoint of a role."""

import re
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict

_KEY = re.compile(r"[!-~]*")
"""Characters that an HTTP header can contain; others would fail later, with the key in the error message."""


class Price(BaseModel):
    """Price of a model per million tokens, in the currency of the deployment."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: float = Field(ge=0)
    output: float = Field(ge=0)

    def cost(self, input_tokens: int, output_tokens: int) -> float:
        """Returns the cost of these tokens."""
        return (self.input * input_tokens + self.output * output_tokens) / 1e6


class LlmSettings(BaseSettings):
    """An OpenAI-compatible endpoint; `of` reads the settings of a role from the environment."""

    model_config = SettingsConfigDict(
        env_prefix="LLM_",
        env_ignore_empty=True,
        frozen=True,
        use_attribute_docstrings=True,
        extra="ignore",
        hide_input_in_errors=True,  # a URL may contain a password
    )

    base_url: str | None = None
    """Such as http://127.0.0.1:8000/v1; unset: no LLM is used."""
    model: str = ""
    """Name of the model at the endpoint."""
    api_key: SecretStr = SecretStr("")
    internal: bool = False
    """The endpoint belongs to the deployment: it also receives requests whose data must not leave it."""
    temperature: float = Field(0.0, ge=0, le=2)
    timeout_seconds: float = Field(60.0, gt=0)
    """Of a whole call, including retries."""
    first_token_seconds: float = Field(15.0, gt=0)
    """Idle timeout: without a token for this long, before the first or between two, the call fails."""
    concurrency: int = Field(8, ge=1)
    """Concurrent requests to one endpoint by all roles of a process; the first role to open it sets the limit."""
    context_tokens: int = Field(8192, ge=512)
    """Limit of prompt and answer together."""
    answer_tokens: int = Field(1024, ge=16)
    """Limit of the answer."""
    attempts: int = Field(3, ge=1)
    """Requests per call while the endpoint is unavailable or overloaded."""
    retry_seconds: float = Field(0.5, gt=0)
    """First pause between two requests; it doubles, with jitter, and is at least the server's Retry-After."""
    prices: dict[str, Price] = Field(default_factory=dict)
    """By model name: {"name": {"input": 0.15, "output": 0.6}}, per million tokens."""
    json_schema: Literal["auto", "on", "off"] = "auto"
    """Whether answers are constrained by a JSON schema (response_format); auto: unless the endpoint refuses it."""

    vision: bool = False
    """The model accepts images."""

    @classmethod
    def of(cls, role: str) -> Self:
        """Reads the settings of a role: for "planner" PLANNER_LLM_MODEL, else LLM_MODEL, and so on.

        A role that sets its own base_url with another scheme, host or port does not inherit `internal` and `api_key`:
        neither may apply to a different endpoint by accident.
        """
        own = EnvSettingsSource(cls, env_prefix=f"{role.upper()}_LLM_")()
        if "base_url" in own and _origin(own["base_url"]) != _origin(cls().base_url):
            own = {"internal": False, "api_key": ""} | own
        return cls(**own)

    @field_validator("base_url")
    @classmethod
    def _check_base_url(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value.strip())
        if (
            parts.scheme not in {"http", "https"} or not parts.hostname or parts.port == 0
        ):  # invalid ports raise ValueError
            raise ValueError("is not a URL: write it as in http://127.0.0.1:8000/v1")
        if "@" in parts.netloc:
            raise ValueError("contains a user name or password: set the key in LLM_API_KEY")
        if parts.query or parts.fragment:
            raise ValueError("has a query or fragment: remove ? or # and what follows")
        if parts.path.rstrip("/").endswith("/completions"):
            raise ValueError("is the URL of one method: remove /chat/completions")
        return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"

    @field_validator("api_key")
    @classmethod
    def _check_api_key(cls, value: SecretStr) -> SecretStr:
        key = value.get_secret_value().strip()
        if not _KEY.fullmatch(key):
            raise ValueError("contains characters that no key has: copy it again")
        return SecretStr(key)

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if self.base_url and not self.model:
            raise ValueError("an endpoint is set without a model: set LLM_MODEL to its name at the endpoint")
        if self.answer_tokens >= self.context_tokens:
            raise ValueError("answer_tokens must be smaller than context_tokens, which includes the prompt")
        return self


def _origin(url: str | None) -> tuple[str | None, str | None, int | None]:
    parts = urlsplit((url or "").strip())
    return parts.scheme, parts.hostname, parts.port

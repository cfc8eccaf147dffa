"""Which endpoint a role asks, and how."""

import re
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict

_KEY = re.compile(r"[!-~]*")
"""What a header can carry: with other signs the key would be refused, and stand in the reason why."""


class Price(BaseModel):
    """What a model costs, in the currency of the deployment, per million tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: float = Field(ge=0)
    output: float = Field(ge=0)


class LlmSettings(BaseSettings):
    """An OpenAI-compatible endpoint; read with `of`."""

    model_config = SettingsConfigDict(
        env_prefix="LLM_",
        env_ignore_empty=True,
        frozen=True,
        use_attribute_docstrings=True,
        extra="ignore",
        hide_input_in_errors=True,  # an address may hold a password
    )

    base_url: str | None = None
    """As in http://127.0.0.1:8000/v1; unset: no LLM is asked."""
    model: str = ""
    """The endpoint's own name of the model."""
    api_key: SecretStr = SecretStr("")
    internal: bool = False
    """The endpoint belongs to the house: requests whose data may not leave it are sent there too."""
    temperature: float = Field(0.0, ge=0, le=2)
    timeout_seconds: float = Field(60.0, gt=0)
    """A whole call, retries included."""
    first_token_seconds: float = Field(15.0, gt=0)
    """Silence after which an endpoint counts as too slow: before the first token, and between two."""
    concurrency: int = Field(8, ge=1)
    """Requests at a time to one endpoint, by all roles of a process; the first role to open it decides."""
    context_tokens: int = Field(8192, ge=512)
    """Prompt and answer together."""
    answer_tokens: int = Field(1024, ge=16)
    """The answer alone."""
    attempts: int = Field(3, ge=1)
    """Requests per call while the endpoint is down or overloaded."""
    retry_seconds: float = Field(0.5, gt=0)
    """First pause between two requests; it doubles, with jitter, and Retry-After prolongs it."""
    prices: dict[str, Price] = Field(default_factory=dict)
    """By model: {"name": {"input": 0.15, "output": 0.6}}, per million tokens."""
    json_schema: Literal["auto", "on", "off"] = "auto"
    """Whether answers are constrained by a JSON schema (response_format); auto: until the endpoint refuses."""

    @classmethod
    def of(cls, role: str) -> Self:
        """Reads PLANNER_LLM_MODEL, else LLM_MODEL, and so on for every setting of the role "planner".

        A role with an endpoint of its own, on another host or port, says of it again whether it is internal, and with
        which key: neither passes from one endpoint to another.
        """
        own = EnvSettingsSource(cls, env_prefix=f"{role.upper()}_LLM_")()
        if "base_url" in own and _origin(own["base_url"]) != _origin(cls().base_url):
            own = {"internal": False, "api_key": ""} | own
        return cls(**own)

    @field_validator("base_url")
    @classmethod
    def _an_address(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value.strip())
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.port == 0:  # wrong ports raise
            raise ValueError("is not a URL: write it as in http://127.0.0.1:8000/v1")
        if "@" in parts.netloc:
            raise ValueError("holds a name or password: the key belongs into LLM_API_KEY")
        if parts.query or parts.fragment:
            raise ValueError("has a query or fragment: give the part before ? and #")
        if parts.path.rstrip("/").endswith("/completions"):
            raise ValueError("names one method: give the part before /chat/completions")
        return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"

    @field_validator("api_key")
    @classmethod
    def _a_key(cls, value: SecretStr) -> SecretStr:
        key = value.get_secret_value().strip()
        if not _KEY.fullmatch(key):
            raise ValueError("holds signs that no key has: copy it again")
        return SecretStr(key)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.base_url and not self.model:
            raise ValueError("there is an endpoint and no model: set LLM_MODEL to its name there")
        if self.answer_tokens >= self.context_tokens:
            raise ValueError("answer_tokens leaves no room for a prompt in context_tokens")
        return self


def _origin(url: str | None) -> tuple[str | None, str | None, int | None]:
    parts = urlsplit((url or "").strip())
    return parts.scheme, parts.hostname, parts.port

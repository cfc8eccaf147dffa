"""Settings of the remote expert."""

from pathlib import Path
from typing import Annotated

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, SecretStr, StringConstraints
from pydantic_settings import BaseSettings, SettingsConfigDict

from services.common.settings import home


class Endpoint(BaseModel):
    """A dedicated Inference Endpoint, or another server with the same API."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: Annotated[str, StringConstraints(pattern=r"^https?://\S+$")]
    task: str
    id: str
    """Id of the model on its card."""
    description: str = ""
    license: str = ""
    region: str = ""


class RemoteSettings(BaseSettings):
    """Settings of the remote expert, in addition to those of every expert."""

    model_config = SettingsConfigDict(
        env_prefix="REMOTE_",
        env_ignore_empty=True,
        frozen=True,
        populate_by_name=True,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
    )

    token: SecretStr = Field(SecretStr(""), validation_alias=AliasChoices("HF_TOKEN"))
    """Required for calls to providers."""
    offline: bool = Field(default=False, validation_alias=AliasChoices("HF_HUB_OFFLINE"))
    """Whether to call neither the Hub nor providers; endpoints with their own URL are still called."""
    hub: str = Field("https://huggingface.co", validation_alias=AliasChoices("HF_ENDPOINT"))
    """URL of the Hub, or of a mirror."""
    providers: str = "auto"
    """Names in order of preference, separated by commas; auto: the first that runs a model."""
    endpoints: tuple[Endpoint, ...] = ()
    """JSON: [{"url": "https://…", "task": "text-classification", "id": "acme/mood"}]."""
    models_per_task: int = Field(3, ge=1, le=20)
    """Maximum number of cards of a task."""
    timeout_seconds: float = Field(120.0, gt=0)
    """Timeout of one request; where a provider's job is polled, of each poll."""
    reply_bytes: int = Field(64 * 1024 * 1024, ge=1024)
    """Maximum bytes of one answer."""
    listing_seconds: float = Field(10.0, gt=0)
    """Timeout of one list of models from the Hub, at startup."""
    refresh_hours: float = Field(24.0, ge=0)
    """Maximum age of the cached lists."""
    payment_retry_seconds: float = Field(900.0, gt=0)
    """How long a provider that requires payment is not called."""
    cache: Path = Field(default_factory=lambda: home() / "remote" / "cards.json")
    """File of the cached lists."""

    @property
    def preferred_providers(self) -> tuple[str, ...]:
        """The named providers; empty: any."""
        named = tuple(name.strip() for name in self.providers.split(",") if name.strip())
        return () if "auto" in named else named

from pathlib import Path
from typing import Annotated

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, SecretStr, StringConstraints
from pydantic_settings import BaseSettings, SettingsConfigDict

from services.common.settings import home


class Endpoint(BaseModel):
    """A dedicated Inference Endpoint, or another server that speaks like one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: Annotated[str, StringConstraints(pattern=r"^https?://\S+$")]
    task: str
    id: str
    """Of the model there, as its card shows it."""
    description: str = ""
    license: str = ""
    region: str = ""


class RemoteSettings(BaseSettings):
    """What the remote expert can be told beside what every expert can."""

    model_config = SettingsConfigDict(
        env_prefix="REMOTE_", env_ignore_empty=True, frozen=True, populate_by_name=True, hide_input_in_errors=True
    )

    token: SecretStr = Field(SecretStr(""), validation_alias=AliasChoices("HF_TOKEN"))
    """Without it no provider is asked."""
    offline: bool = Field(default=False, validation_alias=AliasChoices("HF_HUB_OFFLINE"))
    """Neither the Hub nor a provider is asked; an endpoint that has a URL of its own is."""
    hub: str = Field("https://huggingface.co", validation_alias=AliasChoices("HF_ENDPOINT"))
    providers: str = "auto"
    """Names in order of preference, with commas between; auto: the first that runs a model."""
    endpoints: tuple[Endpoint, ...] = ()
    """JSON: [{"url": "https://…", "task": "text-classification", "id": "acme/mood"}]."""
    per_task: int = Field(3, ge=1, le=20)
    """Most cards of a task."""
    timeout_seconds: float = Field(120.0, gt=0)
    """One request with its answer; where a provider takes a job that is asked for again and again, each question."""
    reply_bytes: int = Field(64 * 1024 * 1024, ge=1024)
    """Most bytes of one answer."""
    listing_seconds: float = Field(10.0, gt=0)
    """How long the Hub may take for one list, at the start."""
    refresh_hours: float = Field(24.0, ge=0)
    """How old the cached lists may be."""
    paid_out_seconds: float = Field(900.0, gt=0)
    """How long a provider that wants money is left alone."""
    cache: Path = Field(default_factory=lambda: home() / "remote" / "cards.json")
    """Where the lists are kept."""

    @property
    def preferred(self) -> tuple[str, ...]:
        """The providers that were named; none: any."""
        named = tuple(name.strip() for name in self.providers.split(",") if name.strip())
        return () if "auto" in named else named

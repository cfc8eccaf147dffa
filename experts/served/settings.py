from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class ServedSettings(BaseSettings):
    """What the served expert can be told beside what every expert can."""

    model_config = SettingsConfigDict(env_prefix="EXPERT_", env_ignore_empty=True, frozen=True)

    served: Path | None = None
    """The YAML or JSON file that names the servers; unset: there are none."""
    check_seconds: float = Field(10.0, gt=0)
    """How often servers are asked whether they are ready."""

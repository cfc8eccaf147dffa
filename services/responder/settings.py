"""What the responder can be told."""

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from services.common.settings import BalancedSettings
from services.llm.settings import LlmSettings


class Settings(BalancedSettings):
    model_config = SettingsConfigDict(env_prefix="RESPONDER_")

    llm: LlmSettings = Field(default_factory=lambda: LlmSettings.of("responder"))
    """Who writes answers: RESPONDER_LLM_X, else LLM_X; without LLM_BASE_URL they are composed."""

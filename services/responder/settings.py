"""Settings of the responder."""

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from services.common.settings import BalancedSettings
from services.llm.settings import LlmSettings


class Settings(BalancedSettings):
    model_config = SettingsConfigDict(env_prefix="RESPONDER_")

    llm: LlmSettings = Field(default_factory=lambda: LlmSettings.of("responder"))
    """LLM that writes answers: RESPONDER_LLM_…, else LLM_…; without LLM_BASE_URL, templates compose answers."""

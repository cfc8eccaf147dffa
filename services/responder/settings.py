"""What the responder can be told."""

from pydantic_settings import SettingsConfigDict

from services.runtime.settings import ServiceSettings


class Settings(ServiceSettings):
    model_config = SettingsConfigDict(env_prefix="RESPONDER_")

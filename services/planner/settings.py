"""What the planner can be told."""

from pydantic_settings import SettingsConfigDict

from services.runtime.settings import ServiceSettings


class Settings(ServiceSettings):
    model_config = SettingsConfigDict(env_prefix="PLANNER_")

    selector: str = "dns:///selector:50051"
    """Where the catalogue comes from: host:port or dns:///name:port."""

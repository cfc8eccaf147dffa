"""What the planner can be told."""

from typing import Annotated

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from services.common.settings import BalancedSettings, NonEmpty
from services.llm.settings import LlmSettings


class Settings(BalancedSettings):
    model_config = SettingsConfigDict(env_prefix="PLANNER_")

    selector: Annotated[str, NonEmpty] = "dns:///selector:50051"
    """Where the catalogue comes from: host:port or dns:///name:port."""
    llm: LlmSettings = Field(default_factory=lambda: LlmSettings.of("planner"))
    """Who plans; without an endpoint the embedded planner does."""
    demonstrations: int = Field(4, ge=0, le=32)
    """Examples an LLM is shown with a request."""
    variety: float = Field(0.3, ge=0, le=1)
    """0 shows the examples most like the request, 1 the least alike."""

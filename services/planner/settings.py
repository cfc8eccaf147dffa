"""Settings of the planner."""

from typing import Annotated

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from services.common.settings import BalancedSettings, NonEmpty
from services.llm.settings import LlmSettings


class Settings(BalancedSettings):
    model_config = SettingsConfigDict(env_prefix="PLANNER_")

    selector: Annotated[str, NonEmpty] = "dns:///selector:50051"
    """Address of the selector, which provides the catalogue: host:port or dns:///name:port."""
    llm: LlmSettings = Field(default_factory=lambda: LlmSettings.of("planner"))
    """LLM that plans; without an endpoint the embedded planner does."""
    demonstrations: int = Field(4, ge=0, le=32)
    """Number of example requests in the prompt of the LLM."""
    variety: float = Field(0.3, ge=0, le=1)
    """0 selects the examples most similar to the request, 1 the most varied."""

"""Limits of a caller."""

from pydantic import BaseModel, ConfigDict, Field


class Limits(BaseModel):
    """Limits of an API key or a JWT subject; 0 means no limit."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True, extra="ignore")

    requests_per_minute: int = Field(0, ge=0)
    """HTTP requests and gRPC calls of any kind."""
    concurrent_runs: int = Field(0, ge=0)
    """Runs that are accepted and have not ended."""
    bytes_per_day: int = Field(0, ge=0)
    """Bytes received in bodies, messages and fetched files."""
    tokens_per_day: int = Field(0, ge=0)
    """LLM input and output tokens of the caller's runs, counted when a run ends."""


NO_LIMITS = Limits()

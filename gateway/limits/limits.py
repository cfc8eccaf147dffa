"""How much a caller may ask for."""

from pydantic import BaseModel, ConfigDict, Field


class Limits(BaseModel):
    """What a key, or whoever has none of its own, is held to; 0 means no limit."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True, extra="ignore")

    requests_per_minute: int = Field(0, ge=0)
    """Requests over HTTP and calls over gRPC, whatever they ask for."""
    concurrent_runs: int = Field(0, ge=0)
    """Runs that have been accepted and have not ended."""
    bytes_per_day: int = Field(0, ge=0)
    """Bytes sent in, of all bodies and messages."""
    tokens_per_day: int = Field(0, ge=0)
    """Tokens that LLMs read and wrote for its runs, counted when a run has ended."""


NO_LIMITS = Limits()

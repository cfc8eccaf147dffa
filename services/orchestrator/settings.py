"""What the orchestrator can be told."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from services.runtime.settings import ServiceSettings, home


class Settings(ServiceSettings):
    """Environment variables start with ORCHESTRATOR_."""

    model_config = SettingsConfigDict(env_prefix="ORCHESTRATOR_")

    planner: str = "dns:///planner:50051"
    """Where the planner answers."""
    selector: str = "dns:///selector:50051"
    """Where the selector answers."""
    responder: str = "dns:///responder:50051"
    """Where the responder answers."""
    journal: Path = Field(default_factory=lambda: home() / "journal.sqlite")
    """The SQLite file in which runs are kept."""
    max_runs: int = Field(256, ge=1)
    """Runs under way at once; more are refused."""
    tasks_at_once: int = Field(16, ge=1)
    """Tasks of one run under way at once."""
    run_seconds: float = Field(900.0, gt=0)
    """Time a run has unless its budget says less."""
    attempt_seconds: float = Field(300.0, gt=0)
    """Time one call of an expert has."""
    lease_seconds: float = Field(10.0, gt=0)
    """How long a run is left alone after its orchestrator was last heard of."""

"""Settings of the orchestrator."""

from typing import Annotated

from pydantic import AliasChoices, BeforeValidator, Field
from pydantic_settings import SettingsConfigDict

from services.common.database import DEFAULT_CONNECTIONS
from services.common.settings import BalancedSettings, NonEmpty, StoreSettings, home


class Settings(BalancedSettings, StoreSettings):
    """Environment variables start with ORCHESTRATOR_."""

    model_config = SettingsConfigDict(env_prefix="ORCHESTRATOR_")

    planner: Annotated[str, NonEmpty] = "dns:///planner:50051"
    """Address of the planner."""
    selector: Annotated[str, NonEmpty] = "dns:///selector:50051"
    """Address of the selector."""
    responder: Annotated[str, NonEmpty] = "dns:///responder:50051"
    """Address of the responder."""
    journal: Annotated[str, BeforeValidator(str), NonEmpty] = Field(
        default_factory=lambda: str(home() / "journal.sqlite"), repr=False
    )
    """Database of runs: path of a SQLite file, or postgresql://user:password@host:port/name."""
    database_connections: int = Field(DEFAULT_CONNECTIONS, ge=3, validation_alias=AliasChoices("DATABASE_CONNECTIONS"))
    """Connections of this process to PostgreSQL, at least three."""
    keep_seconds: float = Field(30 * 24 * 3600.0, ge=0)
    """Seconds for which ended runs and their results are stored; 0: for ever."""
    address: str = ""
    """host:port at which other orchestrators reach this one; empty: the listen address, if it names one host."""
    max_runs: int = Field(256, ge=1)
    """Limit of active runs; further ones are refused."""
    batch_items: int = Field(64, ge=1)
    """Limit of active batch items of this process, in addition to these runs; each tenant may always have a sixteenth
    of them, at least one."""
    max_bytes: int = Field(512 * 1024 * 1024, ge=1)
    """Memory in bytes for the events of all active runs; runs beyond it are refused, and batch items wait earlier."""
    calls_at_once: int = Field(512, ge=1)
    """Limit of concurrent calls of experts; batch items may hold three quarters of them."""
    calls_per_expert: int = Field(64, ge=1)
    """Limit of concurrent calls of one expert; batch items may hold three quarters of them."""
    calls_per_run: int = Field(16, ge=1)
    """Limit of concurrent calls of one run."""
    run_seconds: float = Field(900.0, gt=0)
    """Time limit of a run in seconds, unless its budget sets a lower one."""
    attempt_seconds: float = Field(300.0, gt=0)
    """Timeout of one call of an expert in seconds."""
    overload_seconds: float = Field(300.0, gt=0)
    """How long, in seconds from the first refusal, a task retries the only remaining expert while it refuses calls as
    overloaded; at most 8 calls, or 32 for an item of a batch."""
    prices: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(default_factory=dict)
    """Price of a second by pool, such as {"cpu": 0.00001, "gpu-l4": 0.0002}; other pools cost nothing."""
    lease_seconds: float = Field(10.0, gt=0)
    """Seconds without a sign of life after which another orchestrator takes over a run."""

    @property
    def own_address(self) -> str:
        """Address at which other orchestrators reach this one; empty: none."""
        host, _, port = self.listen.rpartition(":")
        everywhere = host in {"", "0.0.0.0", "[::]", "*"}
        return self.address or ("" if everywhere or port == "0" else self.listen)

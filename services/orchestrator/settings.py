"""What the orchestrator can be told."""

from typing import Annotated

from pydantic import BeforeValidator, Field
from pydantic_settings import SettingsConfigDict

from services.common.settings import BalancedSettings, NonEmpty, StoreSettings, home


class Settings(BalancedSettings, StoreSettings):
    """Environment variables start with ORCHESTRATOR_."""

    model_config = SettingsConfigDict(env_prefix="ORCHESTRATOR_")

    planner: Annotated[str, NonEmpty] = "dns:///planner:50051"
    """Where the planner answers."""
    selector: Annotated[str, NonEmpty] = "dns:///selector:50051"
    """Where the selector answers."""
    responder: Annotated[str, NonEmpty] = "dns:///responder:50051"
    """Where the responder answers."""
    journal: Annotated[str, BeforeValidator(str), NonEmpty] = Field(
        default_factory=lambda: str(home() / "journal.sqlite"), repr=False
    )
    """Where runs are kept: a SQLite file's path, or postgresql://user:password@host:port/name."""
    keep_seconds: float = Field(30 * 24 * 3600.0, ge=0)
    """How long an ended run is kept, with what it made; 0 is for ever."""
    address: str = ""
    """host:port at which other orchestrators reach this one; empty: where it listens, if that names one host."""
    max_runs: int = Field(256, ge=1)
    """Runs under way at once; more are refused."""
    batch_items: int = Field(64, ge=1)
    """Items of batches under way here at once, beside these runs; a tenant has a sixteenth of them, one at least,
    whatever others have."""
    max_bytes: int = Field(512 * 1024 * 1024, ge=1)
    """Memory that the events of all runs under way may take; runs beyond it are refused, and items of batches wait
    before."""
    calls_at_once: int = Field(512, ge=1)
    """Calls of experts under way at once; items of batches have three quarters of these places at most."""
    calls_per_expert: int = Field(64, ge=1)
    """Of these, how many may be of one expert; again, three quarters at most are for items of batches."""
    calls_per_run: int = Field(16, ge=1)
    """Of these, how many may be for one run."""
    run_seconds: float = Field(900.0, gt=0)
    """Time a run has unless its budget says less."""
    attempt_seconds: float = Field(300.0, gt=0)
    """Time one call of an expert has."""
    overload_seconds: float = Field(300.0, gt=0)
    """Time for which a task calls the only expert left again while that refuses calls as overloaded, from its first
    refusal on; eight calls at most, 32 for an item of a batch."""
    prices: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(default_factory=dict)
    """What a second costs, by pool: {"cpu": 0.00001, "gpu-l4": 0.0002}. A pool that is not named costs nothing."""
    lease_seconds: float = Field(10.0, gt=0)
    """How long a run is left alone after its orchestrator was last heard of."""

    @property
    def own_address(self) -> str:
        """Where other orchestrators reach this one; empty: nowhere."""
        host, _, port = self.listen.rpartition(":")
        everywhere = host in {"", "0.0.0.0", "[::]", "*"}
        return self.address or ("" if everywhere or port == "0" else self.listen)

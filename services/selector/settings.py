"""What the selector can be told."""

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from services.common.settings import BalancedSettings, StoreSettings, home
from services.llm.settings import LlmSettings
from services.selector.catalog import FORGET_SECONDS
from services.selector.llm_ranker import DESCRIBED
from services.selector.query import Mode


class Settings(BalancedSettings, StoreSettings):
    """Prefix SELECTOR_."""

    model_config = SettingsConfigDict(env_prefix="SELECTOR_")

    experts: str = Field(default_factory=lambda: str(home() / "experts"))
    """Where experts are: host:port, dns:///name:port or a folder of *.address files of one line; several by comma."""
    asleep: str = ""
    """Path of a folder of *.json, as `python -m experts.NAME --describe` prints them, of experts that may sleep:
    who has not been met yet is in the catalogue all the same. It is read again while the service runs."""
    inference_mode: Mode = Mode.HYBRID
    """Where models may be, unless a request says otherwise: local, hybrid or remote."""
    region: str = ""
    """Where the house's own machines stand, the wider first, as in eu-central-1: for requests that ask for a region."""
    routes: str = ""
    """Path of a YAML file that lays down, task by task, which models are first, come into question or are forbidden."""
    described: int = Field(DESCRIBED, ge=2)
    """How many of the best ranked models an LLM is told of."""
    forget_seconds: float = Field(FORGET_SECONDS, ge=0)
    """How long an expert that does not answer is waited for."""
    llm: LlmSettings = Field(default_factory=lambda: LlmSettings.of("selector"))
    """Who chooses where nothing else settles it; without an endpoint the ranking does."""

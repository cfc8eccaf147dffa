"""Settings of the selector."""

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from services.common.settings import BalancedSettings, StoreSettings, home
from services.llm.settings import LlmSettings
from services.selector.catalog import FORGET_SECONDS
from services.selector.llm_selector import DESCRIBED
from services.selector.selection import Mode


class Settings(BalancedSettings, StoreSettings):
    """Environment variables start with SELECTOR_."""

    model_config = SettingsConfigDict(env_prefix="SELECTOR_")

    experts: str = Field(default_factory=lambda: str(home() / "experts"))
    """Sources of expert addresses: host:port, dns:///name:port or a folder of *.address files; separated by commas."""
    expert_descriptions: str = ""
    """Folder of *.json files, written by `python -m experts.NAME --describe`, of experts that may be scaled to zero:
    they are in the catalogue before they run for the first time. Changes are read while the service runs."""
    inference_mode: Mode = Mode.HYBRID
    """Default location of models: local, hybrid or remote."""
    region: str = ""
    """Region of the deployment's own machines, such as eu-central-1, for requests with a region constraint."""
    routes: str = ""
    """YAML file with the routing table: which models are first, allowed or forbidden, by task."""
    described: int = Field(DESCRIBED, ge=2)
    """Number of best ranked models in the prompt of the LLM."""
    forget_seconds: float = Field(FORGET_SECONDS, ge=0)
    """Seconds after which an unreachable expert is removed."""
    llm: LlmSettings = Field(default_factory=lambda: LlmSettings.of("selector"))
    """The LLM that selects where the ranking is not decisive; without an endpoint the ranking decides."""

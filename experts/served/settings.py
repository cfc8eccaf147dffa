"""Settings of the served expert."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class ServedSettings(BaseSettings):
    """Settings of the served expert, in addition to those of every expert."""

    model_config = SettingsConfigDict(env_prefix="EXPERT_", env_ignore_empty=True, frozen=True)

    served: Path | None = None
    """Path of a YAML or JSON file that names the servers; unset: there are none. Its format (config.py has all keys):

    servers:
      - name: vllm
        kind: openai                        # or oip: Open Inference Protocol
        address: http://127.0.0.1:8000/v1   # of kind oip: grpc://host:port or grpcs://host:port
        location: internal                  # external: data leaves the deployment
        key_variable: VLLM_KEY              # environment variable that holds the key, if there is one
        models: [{name: qwen2.5-7b, tasks: [text-generation, summarization]}]
    """
    check_seconds: float = Field(10.0, gt=0)
    """Interval of the readiness checks of servers."""

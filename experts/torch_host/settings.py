"""Settings of the source of models."""

from pydantic_settings import BaseSettings, SettingsConfigDict


class SourceSettings(BaseSettings):
    """Source of models, in addition to Hugging Face's own variables (HF_TOKEN, HF_HOME, HF_ENDPOINT, …)."""

    model_config = SettingsConfigDict(env_prefix="EXPERT_", frozen=True, use_attribute_docstrings=True)

    models_url: str = ""
    """A folder, or s3://bucket/prefix, with one folder per model, named as its id; other models are fetched from the
    Hub."""

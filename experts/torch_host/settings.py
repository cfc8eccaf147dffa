from pydantic_settings import BaseSettings, SettingsConfigDict


class SourceSettings(BaseSettings):
    """Where models come from; Hugging Face's own variables (HF_TOKEN, HF_HOME, HF_ENDPOINT, …) mean what they do."""

    model_config = SettingsConfigDict(env_prefix="EXPERT_", frozen=True, use_attribute_docstrings=True)

    models_url: str = ""
    """A folder, or s3://bucket/prefix, with a folder <model id> for each model; those not in it come from the Hub."""

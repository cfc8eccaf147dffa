from typing import Literal

from pydantic import BaseModel, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

Dtype = Literal["auto", "float32", "float16", "bfloat16"]


class OfModel(BaseModel, frozen=True, extra="forbid"):
    """What one model can be told."""

    dtype: Dtype = "auto"
    device: str = ""
    """Such as cuda:1; empty means where the host puts it."""


class TorchSettings(BaseSettings):
    """What the torch modalities can be told; Hugging Face's own variables (HF_TOKEN, HF_HOME, …) mean what they do."""

    model_config = SettingsConfigDict(env_prefix="EXPERT_", frozen=True, use_attribute_docstrings=True)

    models_url: str = ""
    """A folder, or s3://bucket/prefix, with a folder <model id> for each model; those not in it come from the Hub."""
    dtype: Dtype = "auto"
    """Of weights; auto takes bfloat16 or float16 on a GPU, whichever it computes natively, and float32 on a CPU."""
    models: dict[str, OfModel] = Field(default_factory=dict)
    """By model id, as JSON: {"org/name": {"dtype": "float16", "device": "cuda:1"}}."""

    def dtype_of(self, model_id: str) -> Dtype:
        own = self.models.get(model_id, OfModel()).dtype
        return self.dtype if own == "auto" else own

    def device_of(self, model_id: str, device: str) -> str:
        return self.models.get(model_id, OfModel()).device or device

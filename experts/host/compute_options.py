"""How an engine computes a model: number type, attention kernel and TF32, chosen by its card or by the operator."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from experts.host.devices import CPU, DTYPES

AttentionKernel = Literal["", "eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention"]

ATTENTION_KERNELS = tuple(name for name in get_args(AttentionKernel) if name)
"""Names as in transformers; kernels from the Hub are excluded because they are code."""

_OPTIONS = ("attention", "dtype", "tf32")


@dataclass(frozen=True)
class ComputeOptions:
    """Options of one model; an empty string or None leaves the choice to the engine."""

    dtype: str = ""
    """"float32", "float16" or "bfloat16"."""
    attention: str = ""
    """One of ATTENTION_KERNELS."""
    tf32: bool | None = None
    """Whether a GPU computes float32 products in TF32, with 10 bits of mantissa."""

    @classmethod
    def from_card(cls, entry: Mapping[str, Any]) -> "ComputeOptions":
        """Reads the field "gpu" of an entry of models.json.

        Raises:
            ValueError: names the model, the option and the values that it takes.
        """
        gpu: Mapping[str, Any] = entry.get("gpu", {})
        where = f"gpu of model {entry.get('id')}"
        if unknown := sorted(set(gpu) - set(_OPTIONS)):
            raise ValueError(f"{where} has no option {unknown[0]}; its options are {', '.join(_OPTIONS)}")
        dtype, attention, tf32 = gpu.get("dtype", ""), gpu.get("attention", ""), gpu.get("tf32")
        if dtype not in ("", *DTYPES):
            raise ValueError(f"dtype in {where} is {dtype!r}; choose one of {', '.join(DTYPES)}")
        if attention not in ("", *ATTENTION_KERNELS):
            raise ValueError(f"attention in {where} is {attention!r}; choose one of {', '.join(ATTENTION_KERNELS)}")
        if tf32 is not None and tf32 is not True and tf32 is not False:
            raise ValueError(f"tf32 in {where} is {tf32!r}; choose true or false")
        return cls(DTYPES.get(dtype, dtype), attention, tf32)

    def on(self, device: str, override: "ComputeOptions") -> "ComputeOptions":
        """Returns the options for a device: a card's apply to GPUs only, the operator's everywhere and first."""
        card = ENGINE_CHOICE if device == CPU else self
        tf32 = card.tf32 if override.tf32 is None else override.tf32
        return ComputeOptions(override.dtype or card.dtype, override.attention or card.attention, tf32)


ENGINE_CHOICE = ComputeOptions()
"""Leaves everything to the engine."""

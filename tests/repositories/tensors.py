"""Tensors of a repository: names, number types and shapes, and files that have them without taking disk space."""

import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

BYTES = {"BOOL": 1, "F16": 2, "BF16": 2, "F32": 4, "I64": 8}
"""Bytes of a number by the type's name in safetensors."""
_FLOATING = frozenset({"F16", "BF16", "F32"})
_NAMES = {"bool": "BOOL", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "int64": "I64"}


@dataclass(frozen=True)
class Tensor:
    """Number type, as safetensors names it, and shape of one tensor."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def count(self) -> int:
        return prod(self.shape)

    @property
    def size(self) -> int:
        return self.count * BYTES[self.dtype]


Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Weights:
    """Weights of one class in one file."""

    tensors: Tensors
    """All tensors of the file."""
    parameter_count: int
    """Parameters that the class loads, each counted once."""
    loaded: tuple[Tensor, ...]
    """Tensors that the class loads: parameters and buffers."""

    def loaded_bytes(self, dtype: str) -> int:
        """Returns the bytes in memory if floating-point numbers have this type, as torch names it."""
        name = _NAMES[dtype]
        return sum(each.count * BYTES[name if each.dtype in _FLOATING else each.dtype] for each in self.loaded)


def list_weights(model_class: Any, folder: Path, deviations: Mapping[str, Any], dtype: str) -> Weights:
    """Returns the weights of a class of transformers or diffusers as its files name them.

    Args:
        model_class: as in `architectures` of config.json, or in model_index.json.
        folder: has its config.json.
        deviations: Fixture.deviations.
        dtype: number type of the parameters.
    """
    with torch.device("meta"):
        if issubclass(model_class, PreTrainedModel):
            model = model_class(model_class.config_class.from_pretrained(folder))
            tied = model.all_tied_weights_keys
            state = revert_weight_conversion(model, {k: v for k, v in model.state_dict().items() if k not in tied})
        else:
            model = model_class.from_config(model_class.load_config(folder))
            state = model.state_dict()
    untied = {name: _parse_tensor(entry, dtype) for name, entry in deviations.get("untied", {}).items()}
    loaded = {name: _describe(tensor, dtype) for name, tensor in state.items()} | untied
    parameter_count = sum(parameter.numel() for parameter in model.parameters()) + sum(t.count for t in untied.values())
    return Weights(_deviate(loaded, deviations, dtype), parameter_count, tuple(loaded.values()))


def _describe(tensor: torch.Tensor, dtype: str) -> Tensor:
    kept = dtype if tensor.is_floating_point() else str(tensor.dtype).removeprefix("torch.")
    return Tensor(_NAMES[kept], tuple(tensor.shape))


def _deviate(tensors: Tensors, deviations: Mapping[str, Any], dtype: str) -> Tensors:
    renamed = {_rename(name, deviations.get("renamed", {})): tensor for name, tensor in tensors.items()}
    extra = {name: _parse_tensor(entry, dtype) for name, entry in deviations.get("extra", {}).items()}
    return {name: tensor for name, tensor in renamed.items() if name not in deviations.get("absent", ())} | extra


def _rename(name: str, patterns: Mapping[str, str]) -> str:
    for pattern, replacement in patterns.items():
        name = re.sub(pattern, replacement, name)
    return name


def _parse_tensor(entry: Any, dtype: str) -> Tensor:
    if isinstance(entry, list):
        return Tensor(_NAMES[dtype], tuple(entry))
    return Tensor(entry["dtype"], tuple(entry["shape"]))


def write_sparse(path: Path, tensors: Tensors) -> None:
    """Writes a file of safetensors that are zero; file systems store no blocks for the zeros."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [end, end + tensor.size]}
        end += tensor.size
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(encoded)) + encoded)
        file.truncate(8 + len(encoded) + end)

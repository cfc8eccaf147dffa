"""Modules and prompts of a repository of sentence-transformers, read from its files."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from experts.torch_host.checkpoint import Checkpoint
from services.common.errors import FailedPrecondition

if TYPE_CHECKING:
    import torch

_POOLING_MODES = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "last",
}
_SUPPORTED_MODULES = {"Transformer", "Pooling", "Dense", "Normalize"}
_ACTIVATIONS = ("Identity", "Tanh", "ReLU", "GELU", "SiLU", "Sigmoid")
_REMEDY = "use a model with a single pooling (mean, cls, max or last token), dense layers and normalization"


@dataclass(frozen=True)
class EmbeddingModules:
    """What computes a vector from the vectors of tokens, and the texts that precede inputs by purpose."""

    pooling: str
    """mean, cls, max or last."""
    layers: "Sequence[torch.nn.Module]"
    """Dense layers with their activations, applied to the pooled vector."""
    prompts: Mapping[str, str]
    """Prompts by name, such as query, document and STS."""
    default_prompt: str
    """Prompt of inputs without a purpose; mostly empty."""
    max_tokens: int | None
    """Recommended maximum of tokens, if any."""

    def find_prompt(self, *names: str) -> str:
        """Returns the first prompt that exists, or the default one."""
        return next((self.prompts[name] for name in names if name in self.prompts), self.default_prompt)


def read_modules(checkpoint: Checkpoint) -> EmbeddingModules:
    """Reads the modules; of a repository without these files, tokens are pooled by their mean.

    Raises:
        FailedPrecondition: LOAD_FAILED, it needs another pooling, several, or other modules.
    """
    modules: Sequence[Mapping[str, Any]] = _read_json(checkpoint, "modules.json", [])
    by_kind = [(str(module["type"]).rpartition(".")[2], str(module.get("path", ""))) for module in modules]
    if unknown := sorted({kind for kind, _ in by_kind} - _SUPPORTED_MODULES):
        raise _unsupported_error(checkpoint, unknown[0])
    settings = _read_json(checkpoint, "config_sentence_transformers.json", {})
    prompts: dict[str, str] = settings.get("prompts") or {}
    pooling_path = next((path for kind, path in by_kind if kind == "Pooling" and path), "1_Pooling")
    pooling = _read_json(checkpoint, f"{pooling_path}/config.json", {})
    if any(prompts.values()) and pooling.get("include_prompt") is False:
        raise _unsupported_error(checkpoint, "a pooling that excludes the prompt")
    return EmbeddingModules(
        _pooling_mode(checkpoint, pooling),
        [_load_dense(checkpoint, path) for kind, path in by_kind if kind == "Dense"],
        prompts,
        prompts.get(settings.get("default_prompt_name") or "", ""),
        _read_json(checkpoint, "sentence_bert_config.json", {}).get("max_seq_length"),
    )


def _pooling_mode(checkpoint: Checkpoint, pooling: Mapping[str, Any]) -> str:
    modes = sorted(key for key, value in pooling.items() if key.startswith("pooling_mode_") and value is True)
    if unknown := [mode for mode in modes if mode not in _POOLING_MODES] or modes[1:]:
        raise _unsupported_error(checkpoint, unknown[0])
    return _POOLING_MODES[modes[0]] if modes else "mean"


def _load_dense(checkpoint: Checkpoint, path: str) -> "torch.nn.Module":
    """Loads a dense layer in float32, because it is small and vectors are pooled in float32."""
    import torch
    from safetensors.torch import load_file

    config = _read_json(checkpoint, f"{path}/config.json", {})
    activation = str(config.get("activation_function", "Tanh")).rpartition(".")[2]
    weights = checkpoint.folder / PurePosixPath(path) / "model.safetensors"
    if activation not in _ACTIVATIONS:
        raise _unsupported_error(checkpoint, f"the activation {activation}")
    if not weights.is_file():
        raise _unsupported_error(checkpoint, f"a dense layer without {path}/model.safetensors")
    layer = torch.nn.Linear(config["in_features"], config["out_features"], bias=config.get("bias", True))
    tensors = {name.removeprefix("linear."): tensor for name, tensor in load_file(weights).items()}
    try:
        layer.load_state_dict(tensors)
    except RuntimeError as error:
        raise _unsupported_error(checkpoint, f"a dense layer with other weights than {path}/config.json") from error
    return torch.nn.Sequential(layer, getattr(torch.nn, activation)()).to(checkpoint.device, torch.float32).eval()


def _unsupported_error(checkpoint: Checkpoint, part: str) -> FailedPrecondition:
    return FailedPrecondition(
        f"{checkpoint.model_id} computes its vectors with {part}, which is not supported",
        reason="LOAD_FAILED",
        remedy=_REMEDY,
    )


def _read_json(checkpoint: Checkpoint, name: str, default: Any) -> Any:
    """Reads a file of sentence-transformers; returns the default if it does not exist."""
    file = checkpoint.folder / name
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else default

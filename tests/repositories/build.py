"""Builds repositories from their fixtures: files, made-up vocabularies and weights that are zero."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import diffusers
import transformers
from diffusers.pipelines.stable_diffusion.safety_checker import StableDiffusionSafetyChecker

from tests.repositories import Fixture
from tests.repositories.tensors import Weights, list_weights, write_sparse
from tests.repositories.tokenizers import save_tokenizer

TRANSFORMERS_WEIGHTS, DIFFUSERS_WEIGHTS = "model.safetensors", "diffusion_pytorch_model.safetensors"
"""Names of the weights in the libraries' repositories."""
_INDEX, _CONFIG = "model_index.json", "config.json"


def build_repository(fixture: Fixture, folder: Path) -> Mapping[str, Weights]:
    """Writes a repository into an empty folder; returns the weights by the path of their file."""
    for name, class_name in fixture.tokenizers.items():
        (folder / name).mkdir(exist_ok=True)
        save_tokenizer(class_name, folder / name)
    for name, content in fixture.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content), encoding="utf-8")
    weights = _list_repository(fixture, folder)
    for name, listed in weights.items():
        write_sparse(folder / name, listed.tensors)
    return weights


def _list_repository(fixture: Fixture, folder: Path) -> Mapping[str, Weights]:
    if _INDEX not in fixture.files:
        model_class, name = _model_class(fixture.files[_CONFIG])
        if fixture.stored_class:
            model_class = getattr(diffusers, fixture.stored_class)
        weights = list_weights(model_class, folder, fixture.deviations(), fixture.dtype)
        if fixture.loaded_class:
            part = list_weights(getattr(transformers, fixture.loaded_class), folder, {}, fixture.dtype)
            weights = Weights(weights.tensors, part.parameter_count, part.loaded)
        return {name: weights}
    components = {}
    for component in fixture.files[_INDEX]:
        if f"{component}/{_CONFIG}" in fixture.files:
            model_class, name = _model_class(fixture.files[f"{component}/{_CONFIG}"])
            deviations = fixture.deviations(component)
            path = f"{component}/{name}"
            components[path] = list_weights(model_class, folder / component, deviations, fixture.dtype)
    return components


def _model_class(config: Mapping[str, Any]) -> tuple[Any, str]:
    """Returns the class that a configuration names, and the name of the file with its weights."""
    if "architectures" not in config:
        return getattr(diffusers, config["_class_name"]), DIFFUSERS_WEIGHTS
    name = config["architectures"][0]
    if name == StableDiffusionSafetyChecker.__name__:
        return StableDiffusionSafetyChecker, TRANSFORMERS_WEIGHTS
    return getattr(transformers, name), TRANSFORMERS_WEIGHTS

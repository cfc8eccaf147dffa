"""Compares files of repositories with the defaults of the library's classes."""

import inspect
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

import diffusers
import transformers
from transformers import CONFIG_MAPPING

_OF_THE_MODEL = frozenset({"architectures", "id2label", "label2id", "model_type", "num_labels", "torch_dtype"})
"""Fields that the class of a model and its labels decide, not the defaults."""


def differing_fields(content: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of a file that the class which reads it would have otherwise, with their values.

    Fields that the class does not know are left out: they have no effect.

    Args:
        content: of config.json, of a processor's configuration, or of a component of a pipeline.
    """
    if "_class_name" in content:
        parameters = inspect.signature(getattr(diffusers, content["_class_name"]).__init__).parameters
        return dict(_differences(content, {name: each.default for name, each in parameters.items()}))
    if "model_type" in content:
        return dict(_differences(content, CONFIG_MAPPING[content["model_type"]]().to_dict()))
    processor = _processor_class(content.get("image_processor_type") or content["feature_extractor_type"])
    return dict(_differences(processor(**content).to_dict(), processor().to_dict()))


def _processor_class(name: str) -> Any:
    """Returns the class of a name, or the one that has replaced it."""
    replaced = name.replace("FeatureExtractor", "ImageProcessor")
    return getattr(transformers, name, None) or getattr(transformers, replaced)


def _differences(content: Mapping[str, Any], defaults: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name in content.keys() & defaults.keys() - _OF_THE_MODEL:
        given, default = content[name], defaults[name]
        if isinstance(given, dict) and isinstance(default, dict):
            yield from ((f"{name}.{inner}", value) for inner, value in _differences(given, default))
        elif _plain(given) != _plain(default):
            yield name, given


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    return list(value) if isinstance(value, tuple) else value

"""Sizes of models for their cards, from the weights of their repositories."""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from experts.host.devices import DTYPES
from tests.repositories import Fixture
from tests.repositories.build import build_repository
from tests.repositories.tensors import Weights


class Repositories:
    """Builds repositories in the folder that experts load models from."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._weights: dict[str, Mapping[str, Weights]] = {}

    def build(self, model_id: str) -> Mapping[str, Weights]:
        """Builds a repository and those that its loaders need, unless they exist; returns its weights by file."""
        if model_id not in self._weights:
            folder, fixture = self.folder / model_id, Fixture.read(model_id)
            folder.mkdir(parents=True)
            self._weights[model_id] = build_repository(fixture, folder)
            for required in fixture.required:
                self.build(required)
        return self._weights[model_id]


def card_sizes(card: Mapping[str, Any], repositories: Repositories) -> dict[str, Any]:
    """Returns the fields "parameter_count" and "weight_bytes" of a card.

    Both are of all that the card's loader loads, models of other repositories included. The bytes are those in memory
    by number type; components whose number type the card states have that one on a GPU. Of a pipeline that is
    offloaded, a GPU has one component at a time.
    """
    own = repositories.build(card["id"])
    required = [Fixture.read(name) for name in Fixture.read(card["id"]).required]
    others = [
        (weights, each.loaded_dtype) for each in required for weights in repositories.build(each.model_id).values()
    ]
    stated = {name: DTYPES[dtype] for name, dtype in card.get("pipeline", {}).get("dtypes", {}).items()}
    everything = (*own.values(), *(weights for weights, _ in others))
    float32 = sum(weights.loaded_bytes("float32") for weights in everything)
    on_gpu = [weights.loaded_bytes(stated.get(_component(path), "float16")) for path, weights in own.items()]
    float16 = max(on_gpu) if card.get("pipeline", {}).get("offload") else sum(on_gpu)
    float16 += sum(weights.loaded_bytes(dtype or "float16") for weights, dtype in others)
    count = sum(weights.parameter_count for weights in everything)
    return {"parameter_count": count, "weight_bytes": {"float32": float32, "float16": float16}}


def _component(path: str) -> str:
    return PurePosixPath(path).parent.name

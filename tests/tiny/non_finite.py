"""Tiny models whose weights are all NaN, as those of large models may become in 16 bits."""

from math import nan
from typing import Any

from experts.host.handler import Handler, Loader, RemoteHandler
from tests.tiny import TinyModels


class NonFiniteModels(TinyModels):
    """Tiny models whose weights are set to NaN after loading."""

    def _build_before_load(self, modality: str, loader: Loader) -> Loader:
        load = super()._build_before_load(modality, loader)

        def load_with_nan(model_id: str, device: str) -> Handler | RemoteHandler:
            handler = load(model_id, device)
            _fill_with_nan(handler.model)  # type: ignore[union-attr]  # all torch modalities have one
            return handler

        return load_with_nan


def _fill_with_nan(model: Any) -> None:
    import torch

    with torch.no_grad():
        for weights in model.parameters():
            weights.fill_(nan)

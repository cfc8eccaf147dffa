"""Tiny models whose numbers have overflowed, as those of large ones may in 16 bits: every weight is no number."""

from math import nan
from typing import Any

from experts.host.handler import Handler, Loader, RemoteHandler
from tests.tiny import Tiny


class Overflown(Tiny):
    """The tiny models of a session, spoilt once they are loaded."""

    def _building(self, modality: str, loader: Loader) -> Loader:
        load = super()._building(modality, loader)

        def spoilt(model_id: str, device: str) -> Handler | RemoteHandler:
            handler = load(model_id, device)
            _spoil(handler.model)  # type: ignore[union-attr]  # all torch modalities have one
            return handler

        return spoilt


def _spoil(model: Any) -> None:
    import torch

    with torch.no_grad():
        for weights in model.parameters():
            weights.fill_(nan)

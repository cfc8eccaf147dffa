"""The learned numbers, as `make train` writes them and the planner reads them."""

import hashlib
import io
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np
import numpy.typing as npt

from services.planner.embedded.learned.features import Family, Feature
from services.planner.task_spec import Modality

Array = npt.NDArray[np.float32]

FILE = "weights.npz"
MEDIA = (Modality.IMAGE, Modality.AUDIO, Modality.VIDEO, Modality.TABLE)
SIZES = (2, 3, 4, 5)
"""For each it was learned whether a request calls for at least so many tasks."""


@dataclass(frozen=True)
class Weights:
    """S intents, F features.

    An intent is a kind of task, or one of several uses of it.
    """

    intents: tuple[str, ...]
    features: dict[Feature, int]
    families: npt.NDArray[np.int8]
    """F: of each feature."""
    rarity: Array
    """F: inverse document frequency."""
    linear: Array
    """F x (3 S + 4): that each intent is requested, comes first, comes last; and the sizes."""
    bias: Array
    """3 S + 4."""
    fits: Array
    """(S + 1) x S: 1 where the output of one intent is of a kind that another takes; the last row is what was sent."""
    needs: Array
    """S x 4: 1 for each of MEDIA that it can take."""
    links: Array
    """(S + 1) x S: log of how often one intent feeds another, relative to chance; the last row is what was sent."""
    step: Array
    """Of the features of adding one task: those of candidates, then the 15 of move_features."""
    end: Array
    """26: of end_features."""
    pairs: Array
    """(S + 1) x S: by producer and consumer."""
    cooccurrence: Array
    """S x S: by an intent of the graph and the intent that is added."""
    alternatives: Array
    """S x S: by another probable intent and the intent that is added."""
    version: str = ""
    """As a decision names them."""


@cache
def weights() -> Weights:
    """Those that come with the planner."""
    return read(files(__package__).joinpath(FILE).read_bytes())


def read(data: bytes) -> Weights:
    with np.load(io.BytesIO(data), allow_pickle=False) as stored:
        families = stored["families"]
        names = bytes(stored["names"]).decode().split("\n")
        known = [(Family(int(family)), name) for family, name in zip(families, names, strict=True)]
        return Weights(
            intents=tuple(bytes(stored["intents"]).decode().split("\n")),
            features={feature: i for i, feature in enumerate(known)},
            families=families,
            linear=stored["linear"].astype(np.float32) * stored["scale"].astype(np.float32),
            **{name: stored[name].astype(np.float32) for name in _PLAIN},
            version=f"weights:{hashlib.sha256(data).hexdigest()[:16]}",
        )


def write(made: Weights) -> bytes:
    """The linear weights are rounded to 8 bits a number, each column by its own scale."""
    scale = np.maximum(np.abs(made.linear).max(axis=0) / 127, np.finfo(np.float32).tiny)
    ordered = sorted(made.features, key=made.features.__getitem__)
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        intents=_bytes("\n".join(made.intents)),
        names=_bytes("\n".join(name for _, name in ordered)),
        families=made.families,
        linear=np.rint(made.linear / scale).astype(np.int8),
        scale=scale.astype(np.float32),
        **{name: getattr(made, name).astype(np.float32) for name in _PLAIN},
    )
    return buffer.getvalue()


_PLAIN = ("rarity", "bias", "fits", "needs", "links", "step", "end", "pairs", "cooccurrence", "alternatives")


def _bytes(text: str) -> npt.NDArray[np.uint8]:
    return np.frombuffer(text.encode(), dtype=np.uint8)

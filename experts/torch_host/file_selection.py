"""Which files of a repository a model needs: what is read as data, and weights in safetensors alone."""

from collections.abc import Collection, Iterable
from fnmatch import fnmatch
from pathlib import PurePosixPath

WEIGHTS = ".safetensors"
METADATA = ".cache/huggingface/download/config.json.metadata"
"""What `hf download --local-dir` leaves; the commit is its first line."""
_DATA = (".json", ".txt", ".model", ".spm", ".jinja", ".tiktoken", ".vocab", ".bpe")
"""Configurations, vocabularies, chat templates."""
_NOT_OURS = (
    "README*",
    "*.md",
    "onnx/*",
    "openvino/*",
    "coreml/*",
    "original/*",
    ".*",
    "*/.*",
    "runs/*",
    "*requirements*",
)
_PIPELINE = "model_index.json"


def chosen(names: Iterable[str], variant: str = "") -> list[str]:
    """The files to fetch, weights last.

    A repository of several components (it has a model_index.json) gives the files of its folders; any other those at
    its root, with small ones of its folders. Of weights in several variants, one is taken: the one asked for, else the
    plain one.
    """
    ours = [name for name in names if not any(fnmatch(name, pattern) for pattern in _NOT_OURS)]
    weights = [name for name in ours if name.endswith(WEIGHTS) and _belongs(name, pipeline=_PIPELINE in ours)]
    data = [name for name in ours if name.endswith(_DATA)]
    folders = {str(PurePosixPath(name).parent) for name in weights}
    taken = [name for folder in sorted(folders) for name in _one_variant(_inside(weights, folder), variant)]
    return data + taken


def has_weights(names: Iterable[str]) -> bool:
    """Whether there are any that can be loaded."""
    return any(name.endswith(WEIGHTS) for name in chosen(names))


def _belongs(name: str, *, pipeline: bool) -> bool:
    """At the root of a pipeline lie copies of all components in one file."""
    depth = name.count("/")
    return depth == 1 if pipeline else depth == 0


def _inside(names: Iterable[str], folder: str) -> list[str]:
    return [name for name in names if str(PurePosixPath(name).parent) == folder]


def _one_variant(names: Collection[str], variant: str) -> list[str]:
    """Of model.safetensors, model.fp16.safetensors, model-00001-of-00002.safetensors and the like, one set."""
    by_variant: dict[str, list[str]] = {}
    for name in names:
        by_variant.setdefault(_variant(name), []).append(name)
    found = by_variant.get(variant) or by_variant.get("") or next(iter(by_variant.values()))
    own = [name for name in found if not PurePosixPath(name).name.startswith("consolidated")]
    return own or found


def _variant(name: str) -> str:
    """The fp16 of model.fp16.safetensors and of model.fp16-00001-of-00002.safetensors."""
    _, _, rest = PurePosixPath(name).name.removesuffix(WEIGHTS).partition(".")
    return rest.partition("-")[0]

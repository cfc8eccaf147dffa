"""Selects the files of a repository that a model needs: data files, and weights only in safetensors."""

from collections.abc import Collection, Iterable
from fnmatch import fnmatch
from pathlib import PurePosixPath

WEIGHTS = ".safetensors"
METADATA = ".cache/huggingface/download/config.json.metadata"
"""Metadata file written by `hf download --local-dir`; its first line is the commit."""
_DENSE_LAYER = "[0-9]*_Dense/model.safetensors"
"""Weights of a layer of sentence-transformers, next to its encoder's."""
_DATA = (".json", ".txt", ".model", ".spm", ".jinja", ".tiktoken", ".vocab", ".bpe")
"""Configurations, vocabularies, chat templates."""
_IGNORED = (
    "README*",
    "*.md",
    "onnx/*",
    "openvino/*",
    "coreml/*",
    "original/*",
    "open_clip_*",
    ".*",
    "*/.*",
    "runs/*",
    "*requirements*",
)
_OTHER_WEIGHTS = ("consolidated*", "model_*", "diffusion_pytorch_model_*")
"""Names of weights in another format, or of another model of the repository, which libraries do not look for."""
PIPELINE_INDEX = "model_index.json"
"""File of a repository of several components."""


def select_files(names: Iterable[str], variant: str = "") -> list[str]:
    """Returns the files to fetch, weights last.

    A repository of several components, with a model_index.json, has weights in its folders; any other at its root.
    Of several variants of the weights one is selected: the requested one, or the one without a variant name. Next to
    weights that libraries load, those of another model or format are not selected.
    """
    candidates = [name for name in names if not any(fnmatch(name, pattern) for pattern in _IGNORED)]
    weights = [
        name
        for name in candidates
        if name.endswith(WEIGHTS) and _is_model_weights(name, pipeline=PIPELINE_INDEX in candidates)
    ]
    data = [name for name in candidates if name.endswith(_DATA)]
    folders = {str(PurePosixPath(name).parent) for name in weights}
    selected = [name for folder in sorted(folders) for name in _select_variant(_in_folder(weights, folder), variant)]
    return data + selected


def has_weights(names: Iterable[str]) -> bool:
    """Whether the files include weights that can be loaded."""
    return any(name.endswith(WEIGHTS) for name in select_files(names))


def _is_model_weights(name: str, *, pipeline: bool) -> bool:
    """Whether a file belongs to the model; weights at the root of a pipeline are copies of all components."""
    depth = name.count("/")
    return depth == 1 if pipeline else depth == 0 or fnmatch(name, _DENSE_LAYER)


def _in_folder(names: Iterable[str], folder: str) -> list[str]:
    return [name for name in names if str(PurePosixPath(name).parent) == folder]


def _select_variant(names: Collection[str], variant: str) -> list[str]:
    """Selects one set of weights, such as model.safetensors, model.fp16.safetensors or numbered shards."""
    by_variant: dict[str, list[str]] = {}
    for name in names:
        by_variant.setdefault(_variant(name), []).append(name)
    chosen = by_variant.get(variant) or by_variant.get("") or next(iter(by_variant.values()))
    return [name for name in chosen if not _has_other_weights(name)] or chosen


def _has_other_weights(name: str) -> bool:
    return any(fnmatch(PurePosixPath(name).name, pattern) for pattern in _OTHER_WEIGHTS)


def _variant(name: str) -> str:
    """Returns the variant: fp16 for model.fp16.safetensors and model.fp16-00001-of-00002.safetensors."""
    _, _, rest = PurePosixPath(name).name.removesuffix(WEIGHTS).partition(".")
    return rest.partition("-")[0]

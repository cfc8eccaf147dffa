"""Checks that a checkpoint has all the weights of the class that it is loaded into.

Libraries initialize absent weights at random, so that a model of another task would answer, differently at each load.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any

from services.common.errors import FailedPrecondition

_UNUSED = re.compile(
    r"(^|\.)masked_spec_embed$"  # replaces masked frames while a speech encoder is trained
    r"|(^|\.)criterion\."  # weights of losses
    r"|(^|\.)num_batches_tracked$"  # counts the batches of training
    r"|(^|\.)fusion_stage\.layers\.0\.residual_layer1\."  # DPT's first layer has no residual input
)
"""Weights that no model uses except in training."""
POOLER = r"(^|\.)pooler\."
"""Pooler of an encoder, for loaders that read the vectors of tokens or patches only."""


def check_weights(model_id: str, class_name: str, info: Mapping[str, Any], *, unused: Collection[str] = ()) -> None:
    """Checks the loading info of transformers or diffusers; weights that the class does not have are ignored.

    Args:
        model_id: for the error.
        class_name: class that was loaded, for the error.
        info: has "missing_keys", and "mismatched_keys" with name and both shapes.
        unused: regular expressions for names of weights that the caller does not use.

    Raises:
        FailedPrecondition: LOAD_FAILED, weights are absent or have other shapes.
    """
    missing = sorted(name for name in info["missing_keys"] if not _is_unused(name, unused))
    mismatched = sorted(entry for entry in info["mismatched_keys"] if not _is_unused(entry[0], unused))
    if missing:
        cause = f"they lack {_summarize(missing)}, which {class_name} needs"
    elif mismatched:
        name, actual, expected = mismatched[0]
        cause = f"{name} has the shape {_shape(actual)}; {class_name} needs {_shape(expected)}"
    else:
        return
    raise FailedPrecondition(
        f"the weights of {model_id} are for another class or task: {cause}",
        reason="LOAD_FAILED",
        remedy="use a model that was trained for this task, or correct its config.json",
    )


def _is_unused(name: str, patterns: Collection[str]) -> bool:
    return bool(_UNUSED.search(name)) or any(re.search(pattern, name) for pattern in patterns)


def _summarize(names: list[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if names[1:] else "")


def _shape(shape: Any) -> str:
    return " x ".join(map(str, shape)) or "of a number"

"""TF32 on GPUs, which torch switches for a whole process."""

from threading import Lock
from typing import Any

from services.common.errors import FailedPrecondition

_lock = Lock()
_choices: dict[bool, str] = {}
"""The choice of this process, with the model that made it."""


def choose_tf32(model_id: str, *, enabled: bool) -> None:
    """Sets whether float32 matrix products, convolutions and recurrent layers are computed in TF32 on GPUs.

    Raises:
        FailedPrecondition: LOAD_FAILED, another model of this process has chosen otherwise.
    """
    import torch

    with _lock:
        if other := _choices.get(not enabled):
            raise FailedPrecondition(
                f"cannot load {model_id}: its card {_verb(enabled)} TF32, and {other} {_verb(not enabled)} it for "
                "the whole process",
                reason="LOAD_FAILED",
                remedy="choose for all models (EXPERT_TF32), or run each in its own process (EXPERT_WORKERS=process)",
            )
        _choices.setdefault(enabled, model_id)
        precision = "tf32" if enabled else "ieee"
        cudnn: Any = torch.backends.cudnn  # its type lacks conv and rnn
        for switch in (torch.backends.cuda.matmul, cudnn.conv, cudnn.rnn):
            switch.fp32_precision = precision


def _verb(enabled: bool) -> str:
    return "enables" if enabled else "disables"

"""How a model is loaded: the context of the load in progress, and the number type and kernels that its engine uses."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from experts.host.devices import CPU, DTYPES

AttentionKernel = Literal["", "eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention"]

ATTENTION_KERNELS = tuple(name for name in get_args(AttentionKernel) if name)
"""Names as in transformers; kernels from the Hub are excluded because they are code."""

_OPTIONS = ("attention", "dtype", "tf32")


@dataclass(frozen=True)
class ComputeOptions:
    """Options of one model, from its card or the operator; an empty string or None leaves the choice to the engine."""

    dtype: str = ""
    """"float32", "float16" or "bfloat16"."""
    attention: str = ""
    """One of ATTENTION_KERNELS."""
    tf32: bool | None = None
    """Whether a GPU computes float32 products in TF32, with 10 bits of mantissa."""

    @classmethod
    def from_card(cls, entry: Mapping[str, Any]) -> "ComputeOptions":
        """Reads the field "gpu" of an entry of models.json.

        Raises:
            ValueError: names the model, the option and the values that it takes.
        """
        gpu: Mapping[str, Any] = entry.get("gpu", {})
        where = f"gpu of model {entry.get('id')}"
        if unknown := sorted(set(gpu) - set(_OPTIONS)):
            raise ValueError(f"{where} has no option {unknown[0]}; its options are {', '.join(_OPTIONS)}")
        dtype, attention, tf32 = gpu.get("dtype", ""), gpu.get("attention", ""), gpu.get("tf32")
        if dtype not in ("", *DTYPES):
            raise ValueError(f"dtype in {where} is {dtype!r}; choose one of {', '.join(DTYPES)}")
        if attention not in ("", *ATTENTION_KERNELS):
            raise ValueError(f"attention in {where} is {attention!r}; choose one of {', '.join(ATTENTION_KERNELS)}")
        if tf32 is not None and tf32 is not True and tf32 is not False:
            raise ValueError(f"tf32 in {where} is {tf32!r}; choose true or false")
        return cls(DTYPES.get(dtype, dtype), attention, tf32)

    def on(self, device: str, override: "ComputeOptions") -> "ComputeOptions":
        """Returns the options for a device: a card's apply to GPUs only, the operator's everywhere and first."""
        card = ENGINE_CHOICE if device == CPU else self
        tf32 = card.tf32 if override.tf32 is None else override.tf32
        return ComputeOptions(override.dtype or card.dtype, override.attention or card.attention, tf32)


ENGINE_CHOICE = ComputeOptions()
"""Leaves everything to the engine."""

_PIPELINE_OPTIONS = ("arguments", "dtypes", "frames_per_second", "offload")


@dataclass(frozen=True)
class PipelineOptions:
    """How a model's pipeline is called, from its card: a distilled model needs other steps than its architecture."""

    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the pipeline that calls do not set, such as num_inference_steps."""
    dtypes: Mapping[str, str] = field(default_factory=dict)
    """Number types of components on a GPU, by name; others have that of the model."""
    frames_per_second: float = 0.0
    """Rate of videos; 0: that of the pipeline's class."""
    offload: bool = False
    """Whether each of its models is in a GPU's memory only while it runs, and otherwise in that of the machine."""

    @classmethod
    def from_card(cls, entry: Mapping[str, Any]) -> "PipelineOptions":
        """Reads the field "pipeline" of an entry of models.json.

        Raises:
            ValueError: names the model and the option.
        """
        options: Mapping[str, Any] = entry.get("pipeline", {})
        where = f"pipeline of model {entry.get('id')}"
        if unknown := sorted(set(options) - set(_PIPELINE_OPTIONS)):
            raise ValueError(f"{where} has no option {unknown[0]}; its options are {', '.join(_PIPELINE_OPTIONS)}")
        dtypes = options.get("dtypes", {})
        if invalid := sorted(set(dtypes.values()) - set(DTYPES)):
            raise ValueError(f"dtypes in {where} has {invalid[0]!r}; choose one of {', '.join(DTYPES)}")
        offload = options.get("offload", False)
        if offload is not True and offload is not False:
            raise ValueError(f"offload in {where} is {offload!r}; choose true or false")
        return cls(
            options.get("arguments", {}),
            {name: DTYPES[dtype] for name, dtype in dtypes.items()},
            float(options.get("frames_per_second", 0)),
            offload,
        )


PIPELINE_DEFAULTS = PipelineOptions()
"""The defaults of the pipeline."""


def ignore_progress(_fraction: float, _message: str) -> None:
    """Ignores progress; unlike other callbacks, it can be sent to another process."""


@dataclass(frozen=True)
class LoadContext:
    """One load of one model."""

    revision: str = ""
    """Revision of the model card; empty allows any revision that is present."""
    progress: Callable[[float, str], None] = ignore_progress
    """Reports progress, 0 to 1, and the current activity; callable from any thread."""
    task: str = ""
    model_id: str = ""
    device: str = ""
    """Never "auto"."""
    compute: ComputeOptions = ENGINE_CHOICE
    """As the operator or the card chose."""
    pipeline: PipelineOptions = PIPELINE_DEFAULTS
    """As the card states."""
    batch_scale: float = 1.0
    """Factor of the limits of batches on the device (devices.batch_scale, unless the operator set one)."""
    fetch_only: bool = False
    """Only download the files: the loader raises FilesFetched when all are present, before it loads any of them."""


class FilesFetched(Exception):  # raised on success, too
    """All files that a model needs are on this machine."""


_NO_LOAD = LoadContext()
_current: ContextVar[LoadContext] = ContextVar("load_context", default=_NO_LOAD)


def current() -> LoadContext:
    """Returns the context of the load in progress; valid on the loader's thread until the loader returns."""
    return _current.get()


@contextmanager
def use(context: LoadContext) -> Iterator[None]:
    """Sets the context of loads within the block, and on threads that are started from it."""
    token = _current.set(context)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def use_revision(revision: str) -> Iterator[None]:
    """Sets the revision for a second model that the model being loaded depends on; empty allows any revision."""
    with use(replace(current(), revision=revision)):
        yield

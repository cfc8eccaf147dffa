"""Checkpoint of a model, through which all torch modalities load their models."""

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from experts.host import load_context
from experts.host.load_context import FilesFetched
from experts.torch_host.devices import find_device, select_dtype
from experts.torch_host.sources import fetch_snapshot
from experts.torch_host.tf32 import choose_tf32
from experts.torch_host.tokenizer_files import prefer_file
from experts.torch_host.weight_checks import check_weights
from services.common.errors import FailedPrecondition, OutOfMemory, ServiceError

if TYPE_CHECKING:
    import torch

for _name, _value in (
    ("HF_HUB_DISABLE_TELEMETRY", "1"),
    ("HF_HUB_DISABLE_PROGRESS_BARS", "1"),  # progress is logged
    ("TRANSFORMERS_VERBOSITY", "error"),
    ("TOKENIZERS_PARALLELISM", "false"),  # several threads tokenize already
):
    os.environ.setdefault(_name, _value)  # read when these libraries are imported, by loaders


@dataclass(frozen=True)
class Checkpoint:
    """A model's files on this machine, with the device and dtype to load it with."""

    model_id: str
    folder: Path
    commit: str
    device: "torch.device"
    dtype: "torch.dtype"
    attention: str = ""
    """Attention kernel; empty leaves it to transformers."""

    @classmethod
    def fetch(cls, model_id: str, device: str, *, variant: str = "") -> Self:
        """Returns the checkpoint of a model at its card's commit, fetched if necessary.

        A loader must request all checkpoints that it needs before it loads any model.

        Args:
            model_id: the repository.
            device: as passed to the loader.
            variant: preferred variant of the weights, such as "fp16".

        Raises:
            FailedPrecondition: LOAD_FAILED, with what is missing.
        """
        context = load_context.current()
        target = find_device("cpu" if context.fetch_only else device)  # a GPU is not required for fetching
        if context.compute.tf32 is not None:
            choose_tf32(context.model_id, enabled=context.compute.tf32)
        found = fetch_snapshot(model_id, context.revision, variant=variant)
        dtype = select_dtype(target, context.compute.dtype)
        return cls(model_id, found.folder, found.commit, target, dtype, context.compute.attention)

    def processor(self, kind: Any, **options: Any) -> Any:
        """Loads a tokenizer, image processor, feature extractor, configuration or other class with from_pretrained.

        Raises:
            FailedPrecondition: LOAD_FAILED.
        """
        with self._translate_errors():
            loaded = kind.from_pretrained(self.folder, local_files_only=True, trust_remote_code=False, **options)
            return prefer_file(loaded, self.folder)

    def model(self, kind: Any, *, unused: Collection[str] = (), **options: Any) -> Any:
        """Loads a transformers model for inference on its device.

        Args:
            kind: class with from_pretrained.
            unused: regular expressions for names of weights that the caller does not use, and that may be absent.
            options: further options of from_pretrained; they may override the dtype.

        Raises:
            FailedPrecondition: LOAD_FAILED; also if weights that the class needs are absent or have other shapes.
            OutOfMemory: it does not fit.
            FilesFetched: the load context is fetch-only.
        """
        if self.attention:
            options = {"attn_implementation": self.attention, **options}
        return self.component(kind, unused=unused, trust_remote_code=False, **options)

    def component(self, kind: Any, *, unused: Collection[str] = (), **options: Any) -> Any:
        """Loads a model of transformers or diffusers that is a part of a pipeline; otherwise like `model`."""
        _raise_if_fetch_only()
        chosen = {"dtype": self.dtype, "use_safetensors": True, **options}
        with self._translate_errors():
            model, info = kind.from_pretrained(
                self.folder, local_files_only=True, output_loading_info=True, ignore_mismatched_sizes=True, **chosen
            )
            check_weights(self.model_id, type(model).__name__, info, unused=unused)
            return model.to(self.device).eval()

    def pipeline(self, kind: Any, *, offload: bool = False, **options: Any) -> Any:
        """Loads a diffusers pipeline onto its device.

        Args:
            kind: class with from_pretrained.
            offload: whether its models are on the device only while they run.
            options: further options of from_pretrained; they may override the dtype.

        Raises:
            FailedPrecondition: LOAD_FAILED.
            OutOfMemory: it does not fit.
            FilesFetched: the load context is fetch-only.
        """
        _raise_if_fetch_only()
        chosen = {"dtype": self.dtype, "use_safetensors": True, **options}
        with self._translate_errors():
            pipeline = kind.from_pretrained(self.folder, local_files_only=True, **chosen)
            if not offload:
                return pipeline.to(self.device)
            pipeline.enable_model_cpu_offload(device=self.device)
            return pipeline

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        import torch

        try:
            yield
        except ServiceError:
            raise
        except torch.OutOfMemoryError:
            raise OutOfMemory(
                f"{self.model_id} does not fit into the GPU's memory",
                remedy="use a smaller model, a smaller dtype (EXPERT_DEVICES) or a larger GPU",
            ) from None
        except ImportError as error:
            package = error.name or ("torchvision" if "torchvision" in str(error).lower() else _first_line(error))
            raise self._load_error(f"it needs a package that is not installed: {package}", "install it") from error
        except (OSError, ValueError, KeyError) as error:
            raise self._load_error(
                _first_line(error), "check that all its files are present and that it supports the task"
            ) from error

    def _load_error(self, cause: str, remedy: str) -> FailedPrecondition:
        return FailedPrecondition(f"cannot load {self.model_id}: {cause}", remedy=remedy, reason="LOAD_FAILED")


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:300]


def _raise_if_fetch_only() -> None:
    if load_context.current().fetch_only:
        raise FilesFetched

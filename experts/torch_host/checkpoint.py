"""A model's checkpoint: the one door through which modalities load."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from experts.host import load_context
from experts.host.load_context import FilesFetched
from experts.torch_host.devices import device_named, dtype_for
from experts.torch_host.sources import snapshot
from services.common.errors import FailedPrecondition, OutOfMemory, ServiceError

if TYPE_CHECKING:
    import torch

for _name, _value in (
    ("HF_HUB_DISABLE_TELEMETRY", "1"),
    ("HF_HUB_DISABLE_PROGRESS_BARS", "1"),  # the log tells
    ("TRANSFORMERS_VERBOSITY", "error"),
    ("TOKENIZERS_PARALLELISM", "false"),  # several threads tokenize already
):
    os.environ.setdefault(_name, _value)  # read when these libraries are imported, by loaders


@dataclass(frozen=True)
class Checkpoint:
    """A model's files on this machine, and where and how they are to compute."""

    model_id: str
    folder: Path
    commit: str
    device: "torch.device"
    dtype: "torch.dtype"

    @classmethod
    def of(cls, model_id: str, device: str, *, variant: str = "") -> Self:
        """The checkpoint of a model at its card's commit, fetched if it is not here yet.

        A loader asks for all the checkpoints it needs before it loads a model of any.

        Args:
            model_id: the repository.
            device: as a loader gets it.
            variant: of weights where there are several, such as "fp16".

        Raises:
            FailedPrecondition: LOAD_FAILED, with what is missing.
        """
        told = load_context.current()
        place = device_named("cpu" if told.fetch_only else device)  # weights for a GPU are fetched without one, too
        found = snapshot(model_id, told.revision, variant=variant)
        return cls(model_id, found.folder, found.commit, place, dtype_for(place, told.dtype))

    def processor(self, kind: Any, **options: Any) -> Any:
        """A tokenizer, image processor, feature extractor or configuration: whatever has from_pretrained.

        Raises:
            FailedPrecondition: LOAD_FAILED.
        """
        with self._explained():
            return kind.from_pretrained(self.folder, local_files_only=True, trust_remote_code=False, **options)

    def model(self, kind: Any, **options: Any) -> Any:
        """A transformers model, ready to infer on its device; another dtype, where a model needs it, is an option.

        Raises:
            FailedPrecondition: LOAD_FAILED.
            OutOfMemory: it does not fit.
            FilesFetched: nothing is to be loaded.
        """
        _check_wanted()
        chosen = {"dtype": self.dtype, "use_safetensors": True, "trust_remote_code": False, **options}
        with self._explained():
            model = kind.from_pretrained(self.folder, local_files_only=True, **chosen)
            return model.to(self.device).eval()

    def pipeline(self, kind: Any, **options: Any) -> Any:
        """A diffusers pipeline or component on its device.

        Raises:
            FailedPrecondition: LOAD_FAILED.
            OutOfMemory: it does not fit.
            FilesFetched: nothing is to be loaded.
        """
        _check_wanted()
        chosen = {"dtype": self.dtype, "use_safetensors": True, **options}
        with self._explained():
            return kind.from_pretrained(self.folder, local_files_only=True, **chosen).to(self.device)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        import torch

        try:
            yield
        except ServiceError:
            raise
        except torch.OutOfMemoryError:
            raise OutOfMemory(
                f"{self.model_id} does not fit into the GPU's memory",
                remedy="take a smaller model, a smaller dtype (EXPERT_DEVICES) or a larger GPU",
            ) from None
        except ImportError as error:
            raise self._failed(
                f"it needs a package that is not installed: {error.name or error}", "install it"
            ) from error
        except (OSError, ValueError, KeyError) as error:
            said = str(error).strip().partition("\n")[0][:300]
            raise self._failed(said, "look whether all its files are there and it is a model for this task") from error

    def _failed(self, cause: str, remedy: str) -> FailedPrecondition:
        return FailedPrecondition(f"{self.model_id}: {cause}", remedy=remedy, reason="LOAD_FAILED")


def _check_wanted() -> None:
    if load_context.current().fetch_only:
        raise FilesFetched

"""Diffusers pipelines: loading, and batches of calls that differ only in prompts, pictures and seeds."""

import inspect
import json
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from experts.host import load_context
from experts.host.handler import UNBATCHED, Batching, Call, Parameters
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.devices import find_device, inference_context, select_dtype
from experts.torch_host.file_selection import PIPELINE_INDEX
from experts.torch_host.torch_handler import TorchHandler
from services.common.errors import FailedPrecondition

if TYPE_CHECKING:
    import torch

BATCHED_PIPELINES = frozenset(
    {
        "LatentConsistencyModelPipeline",
        "StableDiffusionControlNetPipeline",
        "StableDiffusionImg2ImgPipeline",
        "StableDiffusionInpaintPipeline",
        "StableDiffusionInstructPix2PixPipeline",
        "StableDiffusionPipeline",
        "StableDiffusionUpscalePipeline",
        "StableDiffusionXLControlNetPipeline",
        "StableDiffusionXLImg2ImgPipeline",
        "StableDiffusionXLInpaintPipeline",
        "StableDiffusionXLPipeline",
        "StableVideoDiffusionPipeline",
        "TextToVideoSDPipeline",
    }
)
"""Pipelines that accept lists of prompts, pictures and generators and return for each item what it returns alone.

All others run one call at a time. Some of them pad prompts to the longest of the batch, and some draw noise without
the generators (I2VGen-XL).
"""

MAX_BATCH_ITEMS = 4
"""Also the limit of the cost of a batch, as a multiple of a result of the default size with the default steps."""

_ITEM_ARGUMENTS = ("prompt", "negative_prompt", "image", "mask_image", "control_image")
"""Arguments that are lists in a batch; all others are equal for its items."""
_HALF = "fp16"


@dataclass(frozen=True)
class PipelineItem:
    """One call's arguments for a pipeline, with seed and file name."""

    arguments: Mapping[str, Any]
    """Keyword arguments of the pipeline, without the generator and the step callback."""
    seed: int
    name: str
    """Name of the output file."""


class PipelineHandler(TorchHandler):
    """Runs a diffusers pipeline: seeded, in batches if the pipeline supports them, cancellable between steps.

    An item's result depends only on its arguments and its seed. In a batch its numbers differ from those of a single
    call by rounding, as kernels add in another order: on a CPU by at most one of 255 levels per pixel, more with 16-bit
    numbers on a GPU.
    """

    batching = UNBATCHED

    def __init__(self, checkpoint: Checkpoint, model: Any) -> None:
        super().__init__(checkpoint, model)
        self._pipeline_parameters = inspect.signature(type(model).__call__).parameters
        self.card_arguments = load_context.current().pipeline.arguments
        """Arguments of the pipeline from the model's card, for calls that do not set them."""
        if unknown := sorted(self.card_arguments.keys() - self._pipeline_parameters.keys()):
            raise FailedPrecondition(
                f"{self.model_id} is a {type(model).__name__}, which has no argument {unknown[0]}",
                reason="LOAD_FAILED",
                remedy="remove the argument from the model's card",
            )
        self._is_offloaded = is_offloaded(checkpoint)
        if self._is_offloaded:
            self.memory_bytes = count_largest_bytes(model)

    def set_batch_limits(self, default_cost: float) -> None:
        """Enables batches if the pipeline supports them.

        Args:
            default_cost: cost of a result of the default size with the default number of steps.
        """
        if type(self.model).__name__ in BATCHED_PIPELINES:
            self.batching = Batching(MAX_BATCH_ITEMS, MAX_BATCH_ITEMS * default_cost)

    def batch_key(self, item: PipelineItem, parameters: Parameters) -> Hashable:  # noqa: ARG002  # the item has them
        """Returns all arguments but prompts and pictures, of which it returns the names and the pictures' sizes."""
        shared = {name: value for name, value in item.arguments.items() if name not in _ITEM_ARGUMENTS}
        sizes = {name: getattr(item.arguments[name], "size", None) for name in item.arguments.keys() - shared.keys()}
        return tuple(sorted(shared.items())), tuple(sorted(sizes.items()))

    def default_value(self, name: str) -> Any:
        """Returns the default of a parameter: that of the card, or else of the pipeline."""
        return self.card_arguments.get(name, self._pipeline_parameters[name].default)

    def generate(self, items: Sequence[PipelineItem], call: Call) -> Any | None:
        """Returns the pipeline's output for items with one batch key, or None if the call is cancelled."""
        import torch

        if call.cancelled:
            return None
        generators = [torch.Generator().manual_seed(item.seed) for item in items]  # the same numbers on all devices
        arguments = {
            **_collate([item.arguments for item in items]),
            "generator": generators if len(items) > 1 else generators[0],
            "output_type": "np",
            **self._report_steps(call, items[0]),
        }
        try:
            with inference_context(self.model_id):
                return self.model(
                    **{name: value for name, value in arguments.items() if name in self._pipeline_parameters}
                )
        except CallCancelledError:
            return None
        finally:
            if self._is_offloaded:
                self.model.maybe_free_model_hooks()  # a call that fails leaves a model on the GPU

    def _report_steps(self, call: Call, item: PipelineItem) -> dict[str, Any]:
        """Returns the argument with a step callback; replaces the progress bar of a pipeline that has none."""

        def on_step_end(pipeline: Any, step: int, _time: Any, tensors: dict[str, Any]) -> dict[str, Any]:
            total = getattr(pipeline, "num_timesteps", None) or item.arguments["num_inference_steps"]
            report_step(call, step + 1, total)
            return tensors

        if "callback_on_step_end" in self._pipeline_parameters:
            return {"callback_on_step_end": on_step_end}
        self.model.progress_bar = lambda iterable=None, total=None: ProgressBar(call, iterable, total)
        return {}


class CallCancelledError(Exception):
    """Raised between two steps to stop the pipeline of a cancelled call."""


def report_step(call: Call, done: int, total: int) -> None:
    """Reports the progress of a call.

    Raises:
        CallCancelledError: the call is cancelled.
    """
    call.progress(min(1.0, done / total), f"step {done} of {total}")
    if call.cancelled:
        raise CallCancelledError


class ProgressBar:
    """Replaces a pipeline's progress bar, to report steps and to stop a cancelled call."""

    def __init__(self, call: Call, iterable: Iterable[Any] | None = None, total: int | None = None) -> None:
        self._call, self._items = call, list(iterable or ())
        self._done, self._total = 0, total or len(self._items) or 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __iter__(self) -> Iterator[Any]:
        for item in self._items:
            yield item
            self.update()

    def update(self, count: int = 1) -> None:
        self._done += count
        report_step(self._call, self._done, self._total)


def fetch_pipeline(model_id: str, device: str) -> Checkpoint:
    """Fetches a pipeline's files; on a GPU the 16-bit weights, which are half the download.

    Raises:
        FailedPrecondition: LOAD_FAILED.
    """
    return Checkpoint.fetch(model_id, device, variant="" if device == "cpu" else _HALF)


def load_pipeline(checkpoint: Checkpoint, pipeline_class: Any, **options: Any) -> Any:
    """Loads a pipeline of diffusers from the variants of the weights that are available.

    Raises:
        FailedPrecondition: LOAD_FAILED.
        OutOfMemory: the device has too little memory.
    """
    on_cpu = checkpoint.device.type == "cpu"
    components = load_components(checkpoint)
    pipeline = checkpoint.pipeline(pipeline_class, offload=is_offloaded(checkpoint), **components, **options)
    pipeline.set_progress_bar_config(disable=True)
    for component in pipeline.components.values():
        if not on_cpu:  # on a CPU the decoder of Stable Diffusion takes 1.6 times as long with channels last
            use_channels_last(component)
        if hasattr(component, "use_slicing"):
            component.enable_slicing()  # the VAE has the largest tensors: it decodes the items of a batch one by one
    return pipeline


def is_offloaded(checkpoint: Checkpoint) -> bool:
    """Whether the models of a pipeline are on its device only while they run: on a GPU, if the card says so."""
    return checkpoint.device.type != "cpu" and load_context.current().pipeline.offload


def load_component(checkpoint: Checkpoint, component_class: Any) -> Any:
    """Loads a model of diffusers that is a repository of its own, such as a ControlNet.

    Raises:
        FailedPrecondition: LOAD_FAILED.
        OutOfMemory: the device has too little memory.
    """
    component = checkpoint.component(component_class, **_variant_option(checkpoint, checkpoint.folder))
    if checkpoint.device.type != "cpu":
        use_channels_last(component)
    return component


def load_components(checkpoint: Checkpoint) -> dict[str, Any]:
    """Loads the models and tokenizers of a pipeline, which the pipeline itself would not check.

    Raises:
        FailedPrecondition: LOAD_FAILED; also if weights that a model needs are absent or have other shapes.
        OutOfMemory: the device has too little memory.
    """
    index = json.loads((checkpoint.folder / PIPELINE_INDEX).read_text(encoding="utf-8"))
    device = find_device("cpu") if is_offloaded(checkpoint) else checkpoint.device
    components: dict[str, Any] = {}
    for name, entry in index.items():
        folder = checkpoint.folder / name
        component_class = _find_class(*entry) if isinstance(entry, list) and all(entry) else None
        if component_class is None or not folder.is_dir():
            continue
        part = replace(checkpoint, folder=folder, device=device, dtype=_component_dtype(checkpoint, name))
        if hasattr(component_class, "save_vocabulary"):
            components[name] = part.processor(component_class)
        elif hasattr(component_class, "num_parameters"):
            components[name] = part.component(component_class, **_variant_option(checkpoint, folder))
    return components


def _find_class(library: str, name: str) -> Any:
    """Returns the class of a component: of diffusers, of transformers or of a module of diffusers.pipelines."""
    import diffusers
    import transformers

    modules = {"diffusers": diffusers, "transformers": transformers}
    module = modules[library] if library in modules else getattr(diffusers.pipelines, library, None)
    return getattr(module, name, None)


def _component_dtype(checkpoint: Checkpoint, name: str) -> "torch.dtype":
    """Returns the number type of a component: on a GPU that of the card, if it states one."""
    dtypes = load_context.current().pipeline.dtypes
    if checkpoint.device.type == "cpu" or name not in dtypes:
        return checkpoint.dtype
    return select_dtype(checkpoint.device, dtypes[name])


def _variant_option(checkpoint: Checkpoint, folder: Path) -> dict[str, str]:
    """Returns the option that selects 16-bit weights, if the folder has them; on a CPU only if it has no others."""
    has_half = any(folder.glob(f"*.{_HALF}*.safetensors"))
    has_full = any("." not in path.stem for path in folder.glob("*.safetensors"))
    return {"variant": _HALF} if has_half and not (checkpoint.device.type == "cpu" and has_full) else {}


def count_bytes(pipeline: Any) -> int:
    """Returns the bytes of the weights of a pipeline's models."""
    return sum(_component_bytes(pipeline))


def count_largest_bytes(pipeline: Any) -> int:
    """Returns the bytes of the weights of a pipeline's largest model."""
    return max(_component_bytes(pipeline))


def _component_bytes(pipeline: Any) -> list[int]:
    modules = (component for component in pipeline.components.values() if hasattr(component, "parameters"))
    return [
        sum(tensor.numel() * tensor.element_size() for tensor in (*module.parameters(), *module.buffers()))
        for module in modules
    ]


def use_channels_last(component: Any) -> None:
    """Stores the weights of a module's 2D convolutions with the channels last, as GPUs' tensor cores read them.

    A convolution's output has the memory format of its weights. Components that are not modules stay as they are.
    """
    import torch

    for module in component.modules() if isinstance(component, torch.nn.Module) else ():
        if isinstance(module, torch.nn.Conv2d):
            module.weight.data = module.weight.data.contiguous(memory_format=torch.channels_last)


def _collate(items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the arguments of one item, or of several with lists of prompts and pictures."""
    if len(items) == 1:
        return dict(items[0])
    return {
        name: [item[name] for item in items] if name in _ITEM_ARGUMENTS else value for name, value in items[0].items()
    }

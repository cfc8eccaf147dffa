"""Settings of every expert process."""

from typing import Literal

from pydantic import Field, field_validator
from pydantic_settings import SettingsConfigDict

from experts.host.devices import Placements
from experts.host.isolation import Configuration, Limits
from experts.host.load_context import AttentionKernel
from services.common.settings import ServiceSettings, StoreSettings


class Settings(ServiceSettings, StoreSettings):
    """Settings of an expert process."""

    model_config = SettingsConfigDict(env_prefix="EXPERT_")

    max_waiting: int = Field(0, ge=0)
    """Maximum calls of one model, running or waiting; further calls are refused immediately. Background calls may use
    three quarters of it. A call with many items may exceed it. 0: two full batches, and at least 64."""
    batch_items: int = Field(0, ge=0)
    """Maximum calls in one batch, for any model that can batch. 0: 32 times the batch scale."""
    batch_scale: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Factor of the limits of batches: calls, tokens, pixels. 0: memory / 16 GiB of the model's GPU, or for a CPU the
    smaller one of cores / 4 and memory / 16 GiB; at least 1."""
    background_seconds: float = Field(0.05, gt=0)
    """Maximum device time of a batch of background calls, which delays interactive calls."""
    max_input_bytes: int = Field(256 * 1024 * 1024, ge=1)
    """Maximum bytes of the inputs of one call; models hold them in memory."""
    call_seconds: float = Field(900.0, gt=0)
    """Maximum duration of a call including model loading, whatever deadline the caller has."""
    memory_bytes: int = Field(0, ge=0)
    """Memory budget for models on each device; least recently used models are unloaded. 0: 70 % of the machine's
    memory, or 90 % of the free memory of a GPU."""
    devices: str = "*=auto"
    """Device and number type of each model: org/name=cuda:0:bf16,other/name=cpu,*=auto."""
    attention: AttentionKernel = ""
    """Attention kernel of all models that transformers loads, instead of their cards': eager, sdpa, flash_attention_2,
    flash_attention_3 or flex_attention. Empty: the card's, else the one that transformers chooses."""
    tf32: bool | None = None
    """Whether GPUs compute float32 products in TF32, which is faster and has 10 bits of mantissa: for all models,
    instead of their cards' choice. Unset: the card's, else torch's default."""
    pool: str = Field("", pattern="^[a-z0-9._-]{0,64}$")
    """Name of its GPUs, or of the service that runs remote models, in the price table; empty: the GPU's own name, such
    as gpu-l4, or remote. CPUs are cpu."""
    device_seconds: float = Field(900.0, gt=0)
    """Maximum duration of a batch; after it the worker process is killed or, without one, the expert reports that it
    is not alive."""
    load_seconds: float = Field(3600.0, gt=0)
    """Maximum duration of a model load including its download; after it the worker process is killed or, without one,
    the expert reports that it is not alive."""
    workers: Literal["thread", "process"] = "thread"
    """process: each model runs in a process of its own, so that a crash affects only that model; costs memory and
    0.5 ms a call."""
    allowed: str = ""
    """Ids of the models that may be served, separated by commas; empty allows all of the expert's models."""
    threads: int = Field(0, ge=0)
    """Threads that read inputs and write outputs, in addition to one thread per model. 0: half of the cores, from 2 to
    16."""
    decode_workers: int = Field(3, ge=1)
    """Maximum processes that decode images, PDFs, audio and video, and run engines that need no loading. They share
    most of their memory, and are started on demand."""
    decode_slow_workers: int = Field(1, ge=1)
    """How many of these processes calls with more than a second of processor time may occupy while others wait."""
    decode_engine_workers: int = Field(2, ge=1)
    """Maximum processes of each loaded engine, such as OCR (250 MB each). The first is started with the model, others
    on demand."""
    decode_memory_bytes: int = Field(1280 * 1024 * 1024, ge=64 * 1024 * 1024)
    """Memory (address space) for decoding one file: enough for an image of 100 megapixels. A call that needs more
    fails with DECODE_LIMIT. Enforced on Linux only."""
    decode_cpu_seconds: float = Field(60.0, gt=0)
    """Processor time for decoding one file, all pages of a document together; a call that needs more fails with
    DECODE_LIMIT."""
    decode_wall_seconds: float = Field(120.0, gt=0)
    """Time for decoding one file, without waiting for a worker process; a call that needs more fails with
    DECODE_LIMIT."""
    scales_to_zero: bool = False
    """Whether it may be scaled to zero: its models then stay in the catalogue while it is down."""
    region: str = ""
    """Location of its machine, such as eu-central-1; copied to the cards of models that run there."""

    @property
    def allowed_ids(self) -> frozenset[str]:
        return frozenset(name.strip() for name in self.allowed.split(",")) - {""}

    @property
    def isolation(self) -> Configuration:
        """Configuration of the worker processes for native code."""
        limits = Limits(self.decode_memory_bytes, self.decode_cpu_seconds, self.decode_wall_seconds)
        return Configuration(self.decode_workers, self.decode_slow_workers, self.decode_engine_workers, limits)

    @field_validator("devices")
    @classmethod
    def _validate_devices(cls, value: str) -> str:
        Placements(value)
        return value

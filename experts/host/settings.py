from typing import Literal

from pydantic import Field, field_validator
from pydantic_settings import SettingsConfigDict

from experts.host.devices import Places
from experts.host.isolation import Configuration, Limits
from services.common.settings import ServiceSettings, StoreSettings


class Settings(ServiceSettings, StoreSettings):
    """What an expert can be told."""

    model_config = SettingsConfigDict(env_prefix="EXPERT_")

    max_waiting: int = Field(64, ge=1)
    """How many calls one model takes at a time, running or waiting; more are refused at once. Of background calls it
    takes three quarters of that."""
    batch_items: int = Field(32, ge=1)
    """Most calls in one batch, whatever the model would take."""
    background_seconds: float = Field(0.05, gt=0)
    """Most time on the device for a batch of background calls, which interactive ones then wait for."""
    max_input_bytes: int = Field(256 * 1024 * 1024, ge=1)
    """Most bytes of artifacts that one call may bring, since models take them whole."""
    call_seconds: float = Field(900.0, gt=0)
    """Longest call, loading included, whatever deadline the caller has."""
    memory_bytes: int = Field(0, ge=0)
    """What models may take of each device's memory; those not used for longest leave. 0: 70 % of the machine's, or 90 %
    of what a GPU has free."""
    devices: str = "*=auto"
    """Where models compute, and with which numbers: org/name=cuda:0:bf16,other/name=cpu,*=auto."""
    pool: str = Field("", pattern="^[a-z0-9._-]{0,64}$")
    """What the price table calls its GPUs, or whoever answers for models that run elsewhere; empty: a GPU's own name,
    such as gpu-l4, or elsewhere. CPUs are cpu."""
    device_seconds: float = Field(900.0, gt=0)
    """Longest batch: beyond it the worker process is ended or, where there is none, the expert says it is not alive."""
    load_seconds: float = Field(3600.0, gt=0)
    """Longest load of a model, its download included: beyond it the worker process is ended or, where there is none,
    the expert says it is not alive."""
    workers: Literal["thread", "process"] = "thread"
    """process: each model lives in a process of its own, and takes nothing else down with it; costs memory and 0.5 ms
    a call."""
    allowed: str = ""
    """Ids of the only models that may be served, by comma; empty allows all the expert has."""
    threads: int = Field(2, ge=1)
    """Threads that read inputs and write outputs, beside each model's own."""
    decode_workers: int = Field(3, ge=1)
    """Most processes that decode pictures, PDFs, recordings and videos, and run engines that need no loading. They
    share most of their memory, and are started when they are needed."""
    decode_slow_workers: int = Field(1, ge=1)
    """How many of them calls may occupy that take more than a second of processor time, while others wait."""
    decode_engine_workers: int = Field(2, ge=1)
    """Most processes of each engine that is loaded, such as that which reads text in pictures (250 MB each). The first
    is started with the model, others when they are needed."""
    decode_memory_bytes: int = Field(1280 * 1024 * 1024, ge=64 * 1024 * 1024)
    """Memory (address space) for decoding one file: enough for a picture of 100 megapixels. A call that needs more
    fails with DECODE_LIMIT. Systems other than Linux do not limit it."""
    decode_cpu_seconds: float = Field(60.0, gt=0)
    """Processor time for decoding one file, all pages of a document together; beyond it: DECODE_LIMIT."""
    decode_wall_seconds: float = Field(120.0, gt=0)
    """Time for decoding one file, without waiting for a worker process; beyond it: DECODE_LIMIT."""
    may_sleep: bool = False
    """It may be scaled to zero: its models then stay in the catalogue while it is away."""
    region: str = ""
    """Where its machine stands, the wider first, as in eu-central-1: for the cards of models that run here."""

    @property
    def allowed_ids(self) -> frozenset[str]:
        return frozenset(name.strip() for name in self.allowed.split(",")) - {""}

    @property
    def isolation(self) -> Configuration:
        """The worker processes for native code."""
        limits = Limits(self.decode_memory_bytes, self.decode_cpu_seconds, self.decode_wall_seconds)
        return Configuration(self.decode_workers, self.decode_slow_workers, self.decode_engine_workers, limits)

    @field_validator("devices")
    @classmethod
    def _are_places(cls, value: str) -> str:
        Places(value)
        return value

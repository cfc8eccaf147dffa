"""Configuration file of the served expert: servers and their models."""

import os
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from experts.endpoints.prompts import CHAT_TASKS
from protos.hugginggpt.tasks import standard_tasks
from services.common import config_file

MEDIA_TASKS = (
    "automatic-speech-recognition",
    "text-to-speech",
    "text-to-image",
    "feature-extraction",
    "sentence-similarity",
)
"""Tasks for which OpenAI-compatible servers have methods of their own."""

OPENAI_TASKS = (*CHAT_TASKS, *MEDIA_TASKS)

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$")]
Datatype = Literal["BYTES", "BOOL", "UINT8", "INT32", "INT64", "FP16", "FP32", "FP64"]


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Input(_Entry):
    """How a tensor is built from an input port or a parameter."""

    tensor: str
    port: str = ""
    parameter: str = ""
    as_: Literal["text", "bytes", "json", "pixels", "samples"] = Field("text", alias="as")
    datatype: Datatype = "BYTES"
    shape: tuple[int, ...] = (1,)
    """For pixels: batch, channels, height and width, in the order of the layout; -1 keeps a side."""
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    """Pixels are scaled to 0 to 1, then the mean is subtracted, then they are divided by this."""
    rate: int = 16_000

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if bool(self.port) == bool(self.parameter):
            raise ValueError("give either port or parameter")
        if self.as_ == "pixels" and len(self.shape) != len(self.layout):
            raise ValueError("a shape of pixels has four dimensions")
        if (self.as_ in ("text", "bytes")) != (self.datatype == "BYTES"):
            raise ValueError("the datatype BYTES is for text and bytes, and only for them")
        return self


class Output(_Entry):
    """How an output port is built from a tensor."""

    tensor: str
    port: str
    as_: Literal["text", "json", "labels", "vector", "image", "samples"] = Field("text", alias="as")
    labels: tuple[str, ...] = ()
    softmax: bool = False
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    rate: int = Field(16_000, ge=1000)

    @model_validator(mode="after")
    def _check_labels(self) -> Self:
        if (self.as_ == "labels") != bool(self.labels):
            raise ValueError("labels are required for as: labels, and only there")
        return self


class Model(_Entry):
    """One model of a server."""

    name: str
    """Name on the server."""
    id: Name | None = None
    """Id on its cards; unset: server/name."""
    version: str = ""
    tasks: tuple[str, ...] = Field(min_length=1)
    description: str = ""
    license: str = ""
    languages: tuple[str, ...] = ()
    voice: str = "alloy"
    """Default voice."""
    inputs: tuple[Input, ...] = ()
    outputs: tuple[Output, ...] = ()


class Server(_Entry):
    """One server."""

    name: Name
    kind: Literal["openai", "oip"]
    address: str
    """http://host:port/v1 for openai; grpc://host:port, or grpcs with TLS, for oip."""
    location: Literal["internal", "external"]
    """internal: part of the deployment; external: never called under the data policy local."""
    region: str = ""
    key_variable: str = ""
    """Name of the environment variable that holds the key."""
    timeout_seconds: float = Field(120.0, gt=0)
    """Timeout of one call, including its answer."""
    reply_bytes: int = Field(64 * 1024 * 1024, ge=1024, le=2**31 - 1)
    """Maximum bytes of one answer."""
    concurrency: int = Field(16, ge=1)
    models: tuple[Model, ...] = Field(min_length=1)

    @property
    def key(self) -> str:
        return os.environ.get(self.key_variable, "") if self.key_variable else ""

    @model_validator(mode="after")
    def _check_server(self) -> Self:
        schemes = ("http", "https") if self.kind == "openai" else ("grpc", "grpcs")
        parts = urlsplit(self.address)
        if parts.scheme not in schemes or not parts.hostname or "@" in parts.netloc:
            raise ValueError(
                f"the address of a server of kind {self.kind} must begin with {schemes[0]}:// and contain no key"
            )
        for model in self.models:
            _check_model(self.kind, model)
        return self


class Config(_Entry):
    servers: tuple[Server, ...]


def read_config(path: Path) -> Config:
    """Reads the configuration file.

    Raises:
        FailedPrecondition: it is invalid; the message names the file, the line and a remedy.
    """
    return config_file.read(path, Config, "EXPERT_SERVED")


def _check_model(kind: str, model: Model) -> None:
    for task in model.tasks:
        if kind == "openai" and task not in OPENAI_TASKS:
            raise ValueError(f"{model.name}: OpenAI servers do not support {task}; use {', '.join(OPENAI_TASKS)}")
        if kind == "oip":
            _check_ports(model, task)
    if kind == "openai" and (model.inputs or model.outputs):
        raise ValueError(f"{model.name}: inputs and outputs are for servers of kind oip")


def _check_ports(model: Model, task: str) -> None:
    """Checks the tensors against the ports of the task."""
    spec = standard_tasks().get(task)
    if spec is None:
        raise ValueError(f"{model.name}: {task} is not a standard task")
    input_ports = {port for tensor in model.inputs if (port := tensor.port)}
    output_ports = {tensor.port for tensor in model.outputs}
    if any(tensor.as_ == "labels" for tensor in model.outputs):
        output_ports.add("text")
    for direction, used, ports in (("inputs", input_ports, spec.inputs), ("outputs", output_ports, spec.outputs)):
        if unknown := sorted(used - {port.name for port in ports}):
            raise ValueError(f"{model.name}: {task} has no port {unknown[0]} among its {direction}")
        if missing := sorted({port.name for port in ports if port.required} - used):
            raise ValueError(f"{model.name}: no tensor among the {direction} for the port {missing[0]} of {task}")
    parameters = {parameter.name for parameter in spec.parameters}
    if unknown_parameters := sorted({tensor.parameter for tensor in model.inputs if tensor.parameter} - parameters):
        raise ValueError(f"{model.name}: {task} has no parameter {unknown_parameters[0]}")

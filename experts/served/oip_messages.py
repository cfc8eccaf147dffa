"""Subset of the Open Inference Protocol's messages; other fields are ignored.

The classes are created at run time in a separate descriptor pool, to coexist with a client library's stubs.
"""

from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2 as pb
from google.protobuf import descriptor_pool, message_factory

PACKAGE = "inference"
SERVICE = f"/{PACKAGE}.GRPCInferenceService/"

_MESSAGES: Mapping[str, Mapping[str, tuple[int, str]]] = {
    "ServerReadyRequest": {},
    "ServerReadyResponse": {"ready": (1, "bool")},
    "ModelReadyRequest": {"name": (1, "string"), "version": (2, "string")},
    "ModelReadyResponse": {"ready": (1, "bool")},
    "Contents": {
        "bool_contents": (1, "*bool"),
        "int_contents": (2, "*int32"),
        "int64_contents": (3, "*int64"),
        "uint_contents": (4, "*uint32"),
        "uint64_contents": (5, "*uint64"),
        "fp32_contents": (6, "*float"),
        "fp64_contents": (7, "*double"),
        "bytes_contents": (8, "*bytes"),
    },
    "Tensor": {
        "name": (1, "string"),
        "datatype": (2, "string"),
        "shape": (3, "*int64"),
        "contents": (5, "Contents"),
    },
    "RequestedOutput": {"name": (1, "string")},
    "ModelInferRequest": {
        "model_name": (1, "string"),
        "model_version": (2, "string"),
        "inputs": (5, "*Tensor"),
        "outputs": (6, "*RequestedOutput"),
        "raw_input_contents": (7, "*bytes"),
    },
    "ModelInferResponse": {
        "model_name": (1, "string"),
        "model_version": (2, "string"),
        "outputs": (5, "*Tensor"),
        "raw_output_contents": (6, "*bytes"),
    },
}
"""Number and type of each field, by message; * marks repeated fields. Message names are not part of the wire format."""


def _build_file() -> pb.FileDescriptorProto:
    file = pb.FileDescriptorProto(name="open_inference.proto", package=PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            message.field.append(_build_field(field, number, kind.lstrip("*"), repeated=kind.startswith("*")))
    return file


def _build_field(name: str, number: int, kind: str, *, repeated: bool) -> pb.FieldDescriptorProto:
    types = pb.FieldDescriptorProto
    field = types(name=name, number=number, label=types.LABEL_REPEATED if repeated else types.LABEL_OPTIONAL)
    if kind in _MESSAGES:
        field.type, field.type_name = types.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
    else:
        field.type = types.Type.Value(f"TYPE_{kind.upper()}")
    return field


_POOL = descriptor_pool.DescriptorPool()
_POOL.Add(_build_file())


def _message_class(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{PACKAGE}.{name}"))


Tensor, RequestedOutput = _message_class("Tensor"), _message_class("RequestedOutput")
ModelInferRequest, ModelInferResponse = _message_class("ModelInferRequest"), _message_class("ModelInferResponse")
ModelReadyRequest, ModelReadyResponse = _message_class("ModelReadyRequest"), _message_class("ModelReadyResponse")

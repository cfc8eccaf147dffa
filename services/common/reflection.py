"""gRPC server reflection in the versions v1 and v1alpha.

grpcio-reflection has v1alpha only. The messages of v1 are the same in another package, so one servicer serves both.
"""

from collections.abc import Iterable

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, text_format
from grpc_reflection.v1alpha import reflection, reflection_pb2

SERVICES = (reflection.SERVICE_NAME, "grpc.reflection.v1.ServerReflection")
"""Full names of the reflection service, v1alpha and v1."""


def add_reflection(services: Iterable[str], server: grpc.aio.Server) -> None:
    """Adds reflection of these services, and of the reflection services, to a server."""
    _describe_v1()
    servicer = reflection.aio.ReflectionServicer((*services, *SERVICES))
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    handlers = {"ServerReflectionInfo": handler}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(name, handlers) for name in SERVICES])


def _describe_v1() -> None:
    """Adds the description of v1, which clients look up like any other, unless another package has added it."""
    pool = descriptor_pool.Default()
    try:
        pool.FindServiceByName(SERVICES[1])
    except KeyError:
        file = descriptor_pb2.FileDescriptorProto()
        reflection_pb2.DESCRIPTOR.CopyToProto(file)
        pool.Add(text_format.Parse(str(file).replace("v1alpha", "v1"), descriptor_pb2.FileDescriptorProto()))

"""Programs of the last release: messages made from its protos alone, calls by their names, none of today's code."""

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any, Protocol

import grpc
from google.protobuf import duration_pb2
from google.protobuf.descriptor import Descriptor, ServiceDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import ParseDict
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from protos.released import TASKS, released_protos

PACKAGE = "hugginggpt.v1"


@cache
def _released() -> DescriptorPool:
    pool = DescriptorPool()
    for file in released_protos().file:
        pool.Add(file)
    return pool


def elder(name: str) -> Any:
    """The class of a message as it was released."""
    return _class(_released().FindMessageTypeByName(f"{PACKAGE}.{name}"))


def _class(descriptor: Descriptor) -> Any:
    return GetMessageClass(descriptor)


def _service(name: str) -> ServiceDescriptor:
    return _released().FindServiceByName(f"{PACKAGE}.{name}")


def stub(service: str, channel: Any) -> Any:
    """Its calls, by name, over a channel of either kind."""

    def call(method: Any) -> Any:
        opened = channel.unary_stream if method.server_streaming else channel.unary_unary
        path = f"/{PACKAGE}.{service}/{method.name}"
        return opened(path, _class(method.input_type).SerializeToString, _class(method.output_type).FromString)

    return SimpleNamespace(**{method.name: call(method) for method in _service(service).methods})


@asynccontextmanager
async def between(service: str, address: str) -> AsyncIterator[str]:
    """The address of a server that is today's behind, and before of the last release: what was added since is lost."""
    async with grpc.aio.insecure_channel(address) as channel:
        server = grpc.aio.server(handlers=[_handlers(service, _Passing(stub(service, channel)))])
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            await server.stop(None)


class _Passing:
    """Passes calls on, and of their messages what the last release knows."""

    def __init__(self, behind: Any) -> None:
        self._behind = behind

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._behind, name)
        return self._streaming(call) if isinstance(call, grpc.aio.UnaryStreamMultiCallable) else self._answering(call)

    def _answering(self, call: Any) -> Any:
        async def answer(request: Any, context: Any) -> Any:
            answering = call(_known(request), metadata=_own(context), timeout=context.time_remaining())
            reply = await answering
            context.set_trailing_metadata(await answering.trailing_metadata())
            return _known(reply)

        return answer

    def _streaming(self, call: Any) -> Any:
        async def stream(request: Any, context: Any) -> None:
            async for event in call(_known(request), metadata=_own(context), timeout=context.time_remaining()):
                await context.write(_known(event))

        return stream


def _known(message: Any) -> Any:
    message.DiscardUnknownFields()
    return message


def _own(context: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((key, value) for key, value in context.invocation_metadata() if key.startswith("hugginggpt"))


def _handlers(service: str, servicer: object) -> grpc.GenericRpcHandler:
    def handler(method: Any) -> Any:
        kind = grpc.unary_stream_rpc_method_handler if method.server_streaming else grpc.unary_unary_rpc_method_handler
        taken, given = _class(method.input_type), _class(method.output_type)
        return kind(getattr(servicer, method.name), taken.FromString, given.SerializeToString)

    handlers = {method.name: handler(method) for method in _service(service).methods}
    return grpc.method_handlers_generic_handler(f"{PACKAGE}.{service}", handlers)


# ---------------------------------------------------------------- an expert

NAME, WHISPERING, WHISPERER = "elder", "text-whispering", "whisperer"

SECONDS = 30.0
"""Longest wait of a call that the test lets through."""

_SPEC = {
    "name": WHISPERING,
    "description": "Whispers a text: the same words in small letters.",
    "inputs": [{"name": "text", "modality": "MODALITY_TEXT", "required": True, "description": "The text."}],
    "outputs": [{"name": "text", "modality": "MODALITY_TEXT", "required": True, "description": "The text, whispered."}],
    "determinism": "DETERMINISM_EXACT",
    "examples": ["Whisper this text", 'Say it quietly: whisper the sentence "GOOD MORNING"'],
}


class Whispering(Protocol):
    """What a test does with a call of the expert's."""

    def __call__(self, request: Any, context: grpc.ServicerContext) -> str: ...


def whispered(request: Any, context: grpc.ServicerContext) -> str:
    text: str = request.inputs["text"].text
    return text.lower()


class Expert:
    """An expert with a kind of task of its own, and a standard one as it was released.

    Args:
        whispering: gives the text of a reply; replaced by tests.
    """

    def __init__(self, whispering: Whispering = whispered) -> None:
        self.whispering = whispering
        self.calls: list[Call] = []

    def Describe(self, request: Any, context: grpc.ServicerContext) -> Any:
        load = {"loaded": [WHISPERER]}
        if request.known_revision == "1":
            return ParseDict({"unchanged": True, "revision": "1", "load": load}, elder("DescribeResponse")())
        standard = next(spec for spec in json.loads(TASKS.read_text(encoding="utf-8")) if spec["name"] == "translation")
        own = {"id": WHISPERER, "revision": "1", "reach": "REACH_INTERNAL", "state": "MODEL_STATE_READY"}
        told = {
            "expert": NAME,
            "version": "0.0.9",
            "revision": "1",
            "tasks": [_SPEC, standard],
            "models": [{**own, "task": WHISPERING}, {**own, "task": "translation", "id": "old-tongues"}],
            "load": load,
        }
        return ParseDict(told, elder("DescribeResponse")())

    def Infer(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.calls.append(Call.of(request, context))
        text = self.whispering(request, context)
        context.set_trailing_metadata((("expert-queue", "0"), ("expert-loaded", WHISPERER), ("expert-free-bytes", "0")))
        return ParseDict({"outputs": {"text": {"text": text}}, "revision": "1"}, elder("InferResponse")())

    def Progress(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        (call_id,) = request.call_ids
        yield elder("ProgressEvent")(call_id=call_id, fraction=0.5, message="half a breath")


@dataclass(frozen=True)
class Call:
    """What an expert of the last release understands of a call."""

    request: Any
    caller: Any
    seconds: float
    """Its deadline."""

    @classmethod
    def of(cls, request: Any, context: grpc.ServicerContext) -> "Call":
        sent: Mapping[str, Any] = dict(context.invocation_metadata())
        return cls(request, elder("Caller").FromString(sent["hugginggpt-caller-bin"]), context.time_remaining())


@contextmanager
def serving(expert: Expert) -> Iterator[str]:
    """Its address."""
    server = grpc.server(ThreadPoolExecutor(8), handlers=[_handlers("ExpertService", expert)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def refuse(context: grpc.ServicerContext, code: grpc.StatusCode, reason: str, **metadata: str) -> None:
    """Ends a call with a reason; one that is RESOURCE_EXHAUSTED may come back soon."""
    details = [error_details_pb2.ErrorInfo(reason=reason, domain="hugginggpt", metadata=metadata)]
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        details.append(error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(nanos=10**7)))
    status = status_pb2.Status(code=code.value[0], message="not so loud")
    for detail in details:
        status.details.add().Pack(detail)
    context.abort_with_status(rpc_status.to_status(status))

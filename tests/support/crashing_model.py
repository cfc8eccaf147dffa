"""A model that crashes, blocks or corrupts its process, as native code can."""

import ctypes
import os
import signal
import threading
import time
from collections.abc import Sequence
from typing import Any

from experts.host import load_context
from experts.host.handler import Batching, Call, Handler, Inputs, Outputs, Parameters, RemoteHandler
from services.common import call_context
from services.common.errors import InvalidRequest

HARD_SECONDS = 0.3
"""Seconds of computation for the word "hard"."""


class Crashing(Handler):
    """Returns its process id and caller; certain words make it crash, fail or block."""

    batching = Batching(items=4)
    revision = "c0ffee"

    def prepare(self, inputs: Inputs, parameters: Parameters) -> str:
        if inputs["text"] == "dark":
            raise InvalidRequest("it is too dark", port="text", remedy="light it")
        if inputs["text"] == "unreadable":
            _crash()
        return str(inputs["text"])

    def cost(self, item: str) -> float:
        return len(item)

    def run(self, items: Sequence[str], call: Call) -> Sequence[Any]:
        call.progress(0.5, "half")
        for item in items:
            _act_on(item, call)
        return [(item, len(items)) for item in items]

    def finish(self, raw: Any) -> Outputs:
        text, size = raw
        tenant = call_context.current().tenant
        return {"text": f"{text} {os.getpid()}", "data": {"batch": size, "tenant": tenant}}


def _act_on(word: str, call: Call) -> None:
    if word == "segfault":
        _crash()
    if word == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
        threading.Event().wait()
    if word == "exit":
        os._exit(3)
    if word == "bug":
        raise ValueError("a secret")
    if word == "stuck":
        threading.Event().wait()
    done = time.thread_time() + HARD_SECONDS
    while word == "hard" and time.thread_time() < done:
        pass
    while word == "long" and not call.cancelled:
        threading.Event().wait(0.01)


def _crash() -> None:
    ctypes.string_at(0)  # reads an invalid address


def load_crashing(model_id: str, device: str) -> Handler:
    load_context.current().progress(0.5, "unpacking")
    return Crashing()


def crash_on_load(model_id: str, device: str) -> Handler:
    _crash()
    return Crashing()


def hang_on_load(model_id: str, device: str) -> Handler:
    threading.Event().wait()
    return Crashing()


def fail_on_load(model_id: str, device: str) -> Handler:
    raise InvalidRequest("no licence", remedy="get one")


class RemoteModel(RemoteHandler):
    """A model that the host considers remote."""

    def prepare(self, inputs: Inputs, parameters: Parameters) -> str:
        return str(inputs["text"])

    async def infer(self, item: str, call: Call) -> str:
        return f"{item} {os.getpid()}"

    def finish(self, raw: str) -> Outputs:
        return {"text": raw}


def load_remote(model_id: str, device: str) -> RemoteModel:
    return RemoteModel()

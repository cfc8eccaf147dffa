"""Experts added with `experts add`: one file per address, in a folder that the selector reads every second."""

import asyncio
import re
from contextlib import suppress
from dataclasses import dataclass

import grpc

from gateway.cli.errors import USAGE, Problem
from gateway.cli.run_commands import connected_gateway
from protos.hugginggpt.v1.expert_pb2 import DescribeRequest
from protos.hugginggpt.v1.expert_pb2_grpc import ExpertServiceStub
from services.common.channel import dial
from services.common.settings import home

SUFFIX = ".address"
LAST_PORT = 65535

ANSWER_SECONDS = 5.0
"""Time to wait for an expert that has just been started."""

RETRY_SECONDS = 0.2

_ADDRESS = re.compile(r"(?P<host>[^\s:/,]+|\[[0-9a-fA-F:]+\]):(?P<port>[1-9]\d{0,4})")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,62}")
"""Valid names of experts."""


@dataclass(frozen=True)
class Added:
    """An added address."""

    name: str
    """Name of the expert; its address while the expert is unreachable."""
    address: str
    is_reachable: bool


def add(address: str) -> Added:
    """Writes an address file, named after the expert that answers there.

    Raises:
        Problem: the address is invalid, the server there is not an expert, or the file cannot be written.
    """
    match = _ADDRESS.fullmatch(address)
    if not match or int(match["port"]) > LAST_PORT:
        raise Problem(
            f"{address} is not a valid address", remedy="give HOST:PORT, such as 127.0.0.1:50061", status=USAGE
        )
    expert = asyncio.run(_expert_at(address))
    file_name = re.sub(r"[^a-z0-9.-]+", "-", f"{match['host']}-{match['port']}".lower()).strip("-.")
    folder = home() / "experts"
    file = folder / f"{f'{expert}@' if expert else ''}{file_name}{SUFFIX}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = file.with_suffix(".new")
        written.write_text(address + "\n", "utf-8")
        written.replace(file)  # atomic: the selector may be reading
        for other in folder.glob(f"*{SUFFIX}"):
            if other != file and other.read_text("utf-8", "replace").strip() == address:
                other.unlink()
    except OSError as error:
        raise Problem(f"cannot write {file}: {error.strerror}", remedy="check HUGGINGGPT_HOME") from error
    return Added(expert or address, address, bool(expert))


def forget(name: str, url: str | None, api_key: str | None) -> None:
    """Removes an expert from the services, by name or by address.

    Raises:
        HuggingGPTError: the expert is unknown, or cannot be removed.
    """
    with connected_gateway(url, api_key) as client:
        client.forget(name)


async def _expert_at(address: str) -> str:
    """The name of the expert at an address; empty if it does not answer within ANSWER_SECONDS."""
    with suppress(TimeoutError):
        async with asyncio.timeout(ANSWER_SECONDS):
            while True:
                if name := await _name_at(address):
                    return name
                await asyncio.sleep(RETRY_SECONDS)
    return ""


async def _name_at(address: str) -> str:
    async with dial(address) as channel:
        try:
            described = await ExpertServiceStub(channel).Describe(DescribeRequest(), timeout=ANSWER_SECONDS)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                return ""
            remedy = "give the address of an expert; hugginggpt check-expert reports details"
            raise Problem(f"the server at {address} is not an expert", remedy=remedy) from error
    if not _NAME.fullmatch(described.expert):
        raise Problem(
            f"the expert at {address} has no valid name", remedy=f"details: hugginggpt check-expert {address}"
        )
    return described.expert

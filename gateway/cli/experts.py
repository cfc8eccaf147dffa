"""The commands of hugginggpt experts: list, add and forget.

An added expert is one file per address, in a folder that the selector reads every second.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text
from typer.core import TyperGroup

from gateway.cli import catalog, terminal
from gateway.cli.catalog import aligned, below
from gateway.cli.connect import connected_gateway
from gateway.cli.errors import USAGE, Problem
from gateway.cli.options import ApiKey, Json, Url, complete_experts
from gateway.cli.terminal import one_line

SUFFIX = ".address"
LAST_PORT = 65535

ANSWER_SECONDS = 5.0
"""Time to wait for an expert that has just been started."""

RETRY_SECONDS = 0.2

_ADDRESS = re.compile(r"(?P<host>[^\s:/,]+|\[[0-9a-fA-F:]+\]):(?P<port>[1-9]\d{0,4})")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,62}")
"""Valid names of experts."""


class ListFirst(TyperGroup):
    """Command group whose default command is `list`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_default = not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)
        return super().parse_args(ctx, ["list", *args] if is_default else args)


experts = typer.Typer(cls=ListFirst)


@experts.callback()
def of_experts() -> None:
    """List the experts, add one, or remove one.

    An expert states its own name: experts lists it, add prints it, forget accepts it.

    [bold]Examples[/]

      hugginggpt experts

      hugginggpt experts add 127.0.0.1:50061

      hugginggpt experts forget colours
    """


@experts.command("list")
def list_experts(url: Url = None, api_key: ApiKey = None, as_json: Json = False) -> None:
    """List the known experts, also dormant ones, with their problems.

    [bold]Example[/]

      hugginggpt experts list --json
    """
    with terminal.problems_reported():
        catalog.show("/v1/experts", _experts, url, api_key, as_json=as_json)


@experts.command("add")
def add_expert(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Address of the expert.")],
    as_json: Json = False,
) -> None:
    """Add an expert to the services on this machine, which use it within seconds.

    Prints the expert's name. While the expert is unreachable, it is listed by its address.

    [bold]Example[/]

      hugginggpt experts add 127.0.0.1:50061
    """
    with terminal.problems_reported():
        with terminal.err().status(f"calling {address}"):
            added = add(address)
        content = {"name": added.name, "address": added.address}
        terminal.print_done(f"added {added.name}: {address}", content, as_json=as_json)
        if not added.is_reachable:
            terminal.err().print(f"{address} is not reachable yet: the expert is listed by its address until it is")


@experts.command("forget")
def forget_expert(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Name as shown by experts; or HOST:PORT to remove one address.",
            autocompletion=complete_experts,
        ),
    ],
    url: Url = None,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """Remove an added expert, and the stored description of a dormant one.

    After the command has returned, none of the expert's tasks is planned. An expert that hugginggpt up started, or
    whose address is in SELECTOR_EXPERTS, can only be removed when it is unreachable.

    [bold]Examples[/]

      hugginggpt experts forget colours

      hugginggpt experts forget 127.0.0.1:50061
    """
    with terminal.problems_reported():
        with connected_gateway(url, api_key) as client:
            client.forget(name)
        terminal.print_done(f"removed {name}", {"name": name, "forgotten": True}, as_json=as_json)


def _experts(content: Mapping[str, Any]) -> Iterator[RenderableType]:
    rows = [
        (
            expert.get("name", ""),
            "dormant" if expert.get("dormant") else "available" if expert.get("addresses") else "unreachable",
            ", ".join(expert.get("addresses", ())),
        )
        for expert in content["data"]
    ]
    for expert, line in zip(content["data"], aligned(rows), strict=True):
        yield line
        yield below(", ".join(expert.get("tasks", ())))
        for problem in catalog.expert_problems(expert):
            yield Padding(Text(one_line(problem), style="red"), (0, 0, 0, 2))


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
    from services.common.settings import home

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
    import grpc

    from protos.hugginggpt.v1.expert_pb2 import DescribeRequest
    from protos.hugginggpt.v1.expert_pb2_grpc import ExpertServiceStub
    from services.common.channel import dial

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

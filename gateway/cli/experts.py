"""hugginggpt experts."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from gateway.cli import completing
from gateway.cli.options import ApiKey, Json, Url


class ListFirst(TyperGroup):
    """Lists where no command is named, with whatever options list has."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        unnamed = not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)
        return super().parse_args(ctx, ["list", *args] if unnamed else args)


experts = typer.Typer(cls=ListFirst)


@experts.callback()
def of_experts() -> None:
    """List the experts, add one that runs elsewhere, forget one."""


@experts.command("list")
def list_experts(url: Url = None, api_key: ApiKey = None, as_json: Json = False) -> None:
    """List the experts known, awake or not, and what is wrong with any."""
    from gateway.cli import catalogue, terminal

    with terminal.problems_told():
        catalogue.show("/v1/experts", catalogue.experts, url, api_key, as_json=as_json)


@experts.command("add")
def add_expert(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Where it answers.")],
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="What to call the address. Unset: made from the address.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make an expert that runs elsewhere known to the house on this machine; it is used within seconds.

    [bold]Example[/]

      hugginggpt experts add 127.0.0.1:50061 --name mine
    """
    from gateway.cli import addresses, terminal

    with terminal.problems_told():
        added = addresses.add(address, name)
        terminal.tell_done(f"added {added}: {address}", {"name": added, "address": address}, as_json=as_json)


@experts.command("forget")
def forget_expert(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="As experts list shows it, by name or address, or as it was added.",
            autocompletion=completing.experts,
        ),
    ],
    url: Url = None,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """Forget an expert: its address, and what is remembered of it while it sleeps."""
    from gateway.cli import addresses, terminal

    with terminal.problems_told():
        addresses.forget(name, url, api_key)
        terminal.tell_done(f"forgotten {name}", {"name": name, "forgotten": True}, as_json=as_json)

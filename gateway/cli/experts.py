"""hugginggpt experts."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from gateway.cli import shell_completion
from gateway.cli.options import ApiKey, Json, Url


class ListFirst(TyperGroup):
    """Lists where no command is named, with whatever options list has."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        unnamed = not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)
        return super().parse_args(ctx, ["list", *args] if unnamed else args)


experts = typer.Typer(cls=ListFirst)


@experts.callback()
def of_experts() -> None:
    """List the experts, add one that runs elsewhere, forget one.

    An expert has one name: the one it states itself. experts lists it under that name, add prints it, forget takes it.

    [bold]Examples[/]

      hugginggpt experts

      hugginggpt experts add 127.0.0.1:50061

      hugginggpt experts forget colours
    """


@experts.command("list")
def list_experts(url: Url = None, api_key: ApiKey = None, as_json: Json = False) -> None:
    """List the experts known, awake or not, and what is wrong with any.

    [bold]Example[/]

      hugginggpt experts list --json
    """
    from gateway.cli import catalog, terminal

    with terminal.problems_told():
        catalog.show("/v1/experts", catalog.experts, url, api_key, as_json=as_json)


@experts.command("add")
def add_expert(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Where it answers.")],
    as_json: Json = False,
) -> None:
    """Add an expert that runs elsewhere to the services on this machine; it is used within seconds.

    Prints the expert's name. As long as nothing answers there, it is listed by its address.

    [bold]Example[/]

      hugginggpt experts add 127.0.0.1:50061
    """
    from gateway.cli import expert_addresses, terminal

    with terminal.problems_told():
        with terminal.err().status(f"calling {address}"):
            added = expert_addresses.add(address)
        content = {"name": added.name, "address": added.address}
        terminal.tell_done(f"added {added.name}: {address}", content, as_json=as_json)
        if not added.answers:
            terminal.err().print(f"nothing answers at {address} yet: it is listed by its address until then")


@experts.command("forget")
def forget_expert(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="As experts lists it; or HOST:PORT, to remove only that address.",
            autocompletion=shell_completion.experts,
        ),
    ],
    url: Url = None,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """Remove an expert that was added, and what is remembered of it while it is dormant.

    Once the command has returned, none of its tasks is planned. An expert that hugginggpt up started, or whose address
    is in SELECTOR_EXPERTS, can only be forgotten once it no longer answers.

    [bold]Examples[/]

      hugginggpt experts forget colours

      hugginggpt experts forget 127.0.0.1:50061
    """
    from gateway.cli import expert_addresses, terminal

    with terminal.problems_told():
        expert_addresses.forget(name, url, api_key)
        terminal.tell_done(f"forgotten {name}", {"name": name, "forgotten": True}, as_json=as_json)

"""The command group hugginggpt experts."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from gateway.cli import shell_completion
from gateway.cli.options import ApiKey, Json, Url


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
    from gateway.cli import catalog, terminal

    with terminal.problems_reported():
        catalog.show("/v1/experts", catalog.experts, url, api_key, as_json=as_json)


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
    from gateway.cli import expert_addresses, terminal

    with terminal.problems_reported():
        with terminal.err().status(f"calling {address}"):
            added = expert_addresses.add(address)
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
            autocompletion=shell_completion.experts,
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
    from gateway.cli import expert_addresses, terminal

    with terminal.problems_reported():
        expert_addresses.forget(name, url, api_key)
        terminal.print_done(f"removed {name}", {"name": name, "forgotten": True}, as_json=as_json)

"""The commands that show what did what and how long it took, and try whether it does the same again."""

import typer

from gateway.cli.options import ApiKey, Json, RunId, Url


def record(run: RunId, url: Url = None, api_key: ApiKey = None, as_json: Json = False) -> None:
    """Show what did what in a run that has ended: models, commits, parameters, seeds, digests. No content.

    With --json it is the whole record; its schema is at /v1/schemas/record of the gateway.

    [bold]Example[/]

      hugginggpt record run_19a2b3c4d5e6f708192a3b4 --json > record.json
    """
    from gateway.cli import record_commands, terminal

    with terminal.problems_told():
        record_commands.show(run, url, api_key, as_json=as_json)


def verify(run: RunId, url: Url = None, api_key: ApiKey = None, as_json: Json = False) -> None:
    """Do the deterministic tasks of a run again and compare what they give.

    Tasks that give the same to the byte are compared by digest, the others within the tolerance of their types: scores
    0.001, boxes 0.5 pixels, times 2 ms, pictures a mean of one level in 255, recordings a thousandth of full scale.

    [bold]Example[/]

      hugginggpt verify run_19a2b3c4d5e6f708192a3b4

    Exit status: 0 all that can be compared is the same; 1 something is not, or its model, commit or input is gone.
    """
    from gateway.cli import record_commands, terminal

    with terminal.problems_told():
        verified = record_commands.verify(run, url, api_key, as_json=as_json)
    raise typer.Exit(0 if verified else 1)


def trace(run: RunId, url: Url = None, api_key: ApiKey = None, as_json: Json = False) -> None:
    """Show what took how long in a run that has ended, or so far: planning, choosing, waiting, attempts, the answer.

    Of an attempt the solid part of its bar is work, the light part before it waiting inside the expert and transport.

    [bold]Example[/]

      hugginggpt trace run_19a2b3c4d5e6f708192a3b4
    """
    from gateway.cli import terminal
    from gateway.cli.tracing import command

    with terminal.problems_told():
        command.show(run, url, api_key, as_json=as_json)

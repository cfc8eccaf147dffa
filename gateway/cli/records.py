"""Commands for provenance records, verification and traces of runs."""

import typer

from gateway.cli.options import ApiKey, Json, RunId, Url


def record(run: RunId, url: Url = None, api_key: ApiKey = None, as_json: Json = False) -> None:
    """Show the provenance record of a finished run: models, commits, parameters, seeds and digests, but no content.

    --json prints the complete record; the gateway serves its schema at /v1/schemas/record.

    [bold]Example[/]

      hugginggpt record run_19a2b3c4d5e6f708192a3b4 --json > record.json
    """
    from gateway.cli import record_commands, terminal

    with terminal.problems_reported():
        record_commands.show(run, url, api_key, as_json=as_json)


def verify(run: RunId, url: Url = None, api_key: ApiKey = None, as_json: Json = False) -> None:
    """Repeat the deterministic tasks of a run and compare the results.

    Bit-exact tasks are compared by digest, others with a tolerance by type: scores 0.001, boxes 0.5 pixels, times 2 ms,
    images a mean difference of 1/255, audio a thousandth of full scale.

    [bold]Example[/]

      hugginggpt verify run_19a2b3c4d5e6f708192a3b4

    Exit status: 0 all comparable results are the same; 1 a result differs, or its model, commit or input is gone.
    """
    from gateway.cli import record_commands, terminal

    with terminal.problems_reported():
        verified = record_commands.verify(run, url, api_key, as_json=as_json)
    raise typer.Exit(0 if verified else 1)


def trace(run: RunId, url: Url = None, api_key: ApiKey = None, as_json: Json = False) -> None:
    """Show the time that each step of a run took: planning, model selection, waiting, attempts and the answer.

    In the bar of an attempt, the solid part is work; the light part is transport and waiting inside the expert.

    [bold]Example[/]

      hugginggpt trace run_19a2b3c4d5e6f708192a3b4
    """
    from gateway.cli import terminal
    from gateway.cli.tracing import command

    with terminal.problems_reported():
        command.show(run, url, api_key, as_json=as_json)

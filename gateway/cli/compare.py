"""The command that compares models. What it does is imported when it runs: help has to be quick."""

from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.options import ApiKey, Json, Policy, Url


def compare(
    task: Annotated[str, typer.Argument(metavar="TASK", help="What they do; see hugginggpt tasks.")],
    *,
    models: Annotated[
        str, typer.Option("--models", "-m", metavar="A,B", help="Two or more, by comma; MODEL@REVISION is one commit.")
    ],
    files: Annotated[
        list[str],
        typer.Option(
            "--files", "-f", metavar="FILE", help="A file, a pattern, a URL, or the id of a kept file; repeat it."
        ),
    ],
    labels: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A CSV with the columns file and label: what is right.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Another input, or a parameter, the same for all; repeat it."),
    ] = None,
    save_scores: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Add the scores to this file, which a routing table may name.")
    ] = None,
    policy: Annotated[
        Policy | None, typer.Option(help="local: no byte leaves the house. Unset: as the gateway is set up.")
    ] = None,
    url: Url = None,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """Give the same files to several models, and see what each says, how long it takes and what it costs.

    Answers are the same if their labels are, or their words but for case and punctuation, or their numbers to one in
    a hundred; alike is how much of them is, from 0 to 1. With --labels each model has a score: how often it says what
    the label says. For what is found in a picture a label is the names of all things by comma, or how many they are.
    Every answer is a run of its own, by that model alone and anew.

    [bold]Examples[/]

      hugginggpt compare text-classification --models vaderSentiment,py3langid --files 'reviews/*.txt'

      hugginggpt compare object-detection -m opencv/people,opencv/haar-frontalface -f 'photos/*.jpg' --labels right.csv

    Exit status: 0 every model answered for every file; 1 one did not; 2 asked wrongly.
    """
    from gateway.cli import terminal
    from gateway.cli.comparison import run
    from gateway.cli.comparison.request import Wanted

    named = [model.strip() for model in models.split(",") if model.strip()]
    wanted = Wanted(task, named, files, settings or (), labels, save_scores, policy.value if policy else None)
    with terminal.problems_told():
        complete = run.compare(wanted, url, api_key, as_json=as_json)
    raise typer.Exit(0 if complete else 1)

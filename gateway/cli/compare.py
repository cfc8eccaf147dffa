"""The command that compares models. Its implementation is imported only when it runs, so that --help is fast."""

from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.options import ApiKey, Json, Policy, Url


def compare(
    task: Annotated[str, typer.Argument(metavar="TASK", help="Task of the models; see hugginggpt tasks.")],
    *,
    models: Annotated[
        str,
        typer.Option(
            "--models",
            "-m",
            metavar="A,B",
            help="Two or more models, separated by commas; MODEL@REVISION is one commit.",
        ),
    ],
    files: Annotated[
        list[str],
        typer.Option("--files", "-f", metavar="FILE", help="A file, pattern, URL or id of a stored file. Repeatable."),
    ],
    labels: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A CSV with the columns file and label: the expected answers.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Another input, or a parameter, for all models. Repeatable."),
    ] = None,
    save_scores: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Add the scores to this file, which a routing table can refer to."),
    ] = None,
    policy: Annotated[
        Policy | None, typer.Option(help="local: no data leaves the deployment. Unset: the gateway's default.")
    ] = None,
    url: Url = None,
    api_key: ApiKey = None,
    as_json: Json = False,
) -> None:
    """Run several models on the same files, and compare their answers, duration and cost.

    Two answers are the same if their labels are equal, their words are equal except for case and punctuation, or their
    numbers differ by at most 1 %. Similarity is the share of equal words, labels or values, from 0 to 1. With --labels,
    each model gets a score: the similarity of its answers to the labels. The label of an image with several objects is
    their names, separated by commas, or their number. Each answer is a run of its own, without cached results.

    [bold]Examples[/]

      hugginggpt compare text-classification --models vaderSentiment,py3langid --files 'reviews/*.txt'

      hugginggpt compare object-detection -m opencv/people,opencv/haar-frontalface -f 'photos/*.jpg' --labels right.csv

    Exit status: 0 every model answered for every file; 1 a model failed; 2 invalid arguments.
    """
    from gateway.cli import terminal
    from gateway.cli.comparison import run
    from gateway.cli.comparison.request import ComparisonRequest

    model_ids = [model.strip() for model in models.split(",") if model.strip()]
    request = ComparisonRequest(
        task, model_ids, files, settings or (), labels, save_scores, policy.value if policy else None
    )
    with terminal.problems_reported():
        is_complete = run.compare(request, url, api_key, as_json=as_json)
    raise typer.Exit(0 if is_complete else 1)

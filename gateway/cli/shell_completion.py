"""Shell completion of ids and names, requested from a running gateway; empty if none runs."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from gateway.client import HuggingGPT

MAX_COMPLETIONS = 50
HELP_CHARACTERS = 60
"""Characters of a description."""

Completion = tuple[str, str]
"""A completion and its description."""


def runs(context: typer.Context, incomplete: str) -> list[Completion]:
    def completions(client: "HuggingGPT") -> Iterator[Completion]:
        for run in client.runs(page_size=MAX_COMPLETIONS):
            yield run.run_id, " ".join(f"{run.state}: {run.spec.get('request', '')}".split())[:HELP_CHARACTERS]

    return _complete(context, incomplete, completions)


def batches(context: typer.Context, incomplete: str) -> list[Completion]:
    def completions(client: "HuggingGPT") -> Iterator[Completion]:
        for batch in client.batches(page_size=MAX_COMPLETIONS):
            yield batch.batch_id, f"{batch.state}: {batch.counts.ended} of {batch.counts.total}"

    return _complete(context, incomplete, completions)


def pipelines(context: typer.Context, incomplete: str) -> list[Completion]:
    def completions(client: "HuggingGPT") -> Iterator[Completion]:
        for pipeline in client.pipelines(page_size=MAX_COMPLETIONS):
            yield pipeline.name, " ".join(pipeline.description.split())[:HELP_CHARACTERS]

    return _complete(context, incomplete, completions)


def runs_and_batches(context: typer.Context, incomplete: str) -> list[Completion]:
    return [*runs(context, incomplete), *batches(context, incomplete)]


def all_ids(context: typer.Context, incomplete: str) -> list[Completion]:
    return [*runs_and_batches(context, incomplete), *pipelines(context, incomplete)]


def experts(context: typer.Context, incomplete: str) -> list[Completion]:
    def completions(client: "HuggingGPT") -> Iterator[Completion]:
        for expert in client.fetch("/v1/experts")["data"]:
            yield expert["name"], ", ".join(expert.get("addresses", ()))

    return _complete(context, incomplete, completions)


def _complete(
    context: typer.Context, incomplete: str, completions: "Callable[[HuggingGPT], Iterator[Completion]]"
) -> list[Completion]:
    from gateway.client import HuggingGPT  # imported late so that other completions are fast

    try:
        with HuggingGPT(context.params.get("url"), context.params.get("api_key")) as client:
            client.greet()
            return [completion for completion in completions(client) if completion[0].startswith(incomplete)]
    except Exception:  # noqa: BLE001  # completion never shows errors
        return []

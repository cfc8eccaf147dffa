"""What a shell is offered to complete: asked of a gateway that runs, nothing where none does."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from gateway.client import HuggingGPT

OFFERED = 50
SHOWN = 60
"""Characters of a request."""

Offer = tuple[str, str]
"""A word, and what it stands for."""


def runs(context: typer.Context, incomplete: str) -> list[Offer]:
    def offers(house: "HuggingGPT") -> Iterator[Offer]:
        for run in house.runs(page_size=OFFERED):
            yield run.run_id, " ".join(f"{run.state}: {run.spec.get('request', '')}".split())[:SHOWN]

    return _beginning(context, incomplete, offers)


def batches(context: typer.Context, incomplete: str) -> list[Offer]:
    def offers(house: "HuggingGPT") -> Iterator[Offer]:
        for batch in house.batches(page_size=OFFERED):
            yield batch.batch_id, f"{batch.state}: {batch.counts.over} of {batch.counts.total}"

    return _beginning(context, incomplete, offers)


def pipelines(context: typer.Context, incomplete: str) -> list[Offer]:
    def offers(house: "HuggingGPT") -> Iterator[Offer]:
        for pipeline in house.pipelines(page_size=OFFERED):
            yield pipeline.name, " ".join(pipeline.description.split())[:SHOWN]

    return _beginning(context, incomplete, offers)


def runs_and_batches(context: typer.Context, incomplete: str) -> list[Offer]:
    return [*runs(context, incomplete), *batches(context, incomplete)]


def everything(context: typer.Context, incomplete: str) -> list[Offer]:
    return [*runs_and_batches(context, incomplete), *pipelines(context, incomplete)]


def experts(context: typer.Context, incomplete: str) -> list[Offer]:
    def offers(house: "HuggingGPT") -> Iterator[Offer]:
        for expert in house.fetch("/v1/experts")["data"]:
            yield expert["name"], ", ".join(expert.get("addresses", ()))

    return _beginning(context, incomplete, offers)


def _beginning(
    context: typer.Context, incomplete: str, offers: "Callable[[HuggingGPT], Iterator[Offer]]"
) -> list[Offer]:
    from gateway.client import HuggingGPT  # noqa: PLC0415  # completing other words is quick

    try:
        with HuggingGPT(context.params.get("url"), context.params.get("api_key")) as house:
            house.greet()
            return [offer for offer in offers(house) if offer[0].startswith(incomplete)]
    except Exception:  # noqa: BLE001  # a shell is told words, never what went wrong
        return []

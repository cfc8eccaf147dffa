"""hugginggpt batch: starts a batch, follows it and saves its results."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from gateway.cli import request_files
from gateway.cli.batch import follow, items, manifest, plan_source, report
from gateway.cli.batch.follow import FollowedBatch
from gateway.cli.batch.items import Items
from gateway.cli.batch.live_view import View
from gateway.cli.batch.output import Folder
from gateway.cli.batch.parameters import Parameters
from gateway.cli.batch.plan_source import Source
from gateway.cli.connect import gateway
from gateway.cli.errors import USAGE, Problem
from gateway.client import BatchOptions, HuggingGPT

ItemsFactory = Callable[[Parameters], Items]


@dataclass(frozen=True)
class BatchRequest:
    """Options of hugginggpt batch."""

    out: Path
    pipeline: str = ""
    request: str = ""
    plan: Path | None = None
    patterns: Sequence[str] = ()
    folder: Path | None = None
    manifest: Path | None = None
    settings: Sequence[str] = ()
    max_at_once: int | None = None
    policy: str | None = None
    mode: str | None = None
    fresh: bool = False
    is_confirmed: bool = False
    """Whether the plan of a request runs without confirmation."""
    url: str | None = None
    api_key: str | None = None

    def check(self) -> None:
        """Raises Problem unless exactly one plan and one set of items are given."""
        if sum(map(bool, (self.pipeline, self.request.strip(), self.plan))) != 1:
            remedy = "use a pipeline name, --request or --plan"
            raise Problem("give exactly one plan to run", remedy=remedy, status=USAGE)
        if sum(map(bool, (self.patterns, self.folder, self.manifest))) != 1:
            raise Problem(
                "give exactly one set of items", remedy="use one of --files, --folder and --items", status=USAGE
            )
        if self.request and not (self.is_confirmed or sys.stdin.isatty()):
            remedy = 'add --yes, or save a plan first: hugginggpt ask "…" --file FILE --save NAME'
            raise Problem("the plan cannot be confirmed: standard input is not a terminal", remedy=remedy, status=USAGE)

    def options(self) -> dict[str, Any]:
        """The client's options of each run."""
        values = {"policy": self.policy, "inference_mode": self.mode, "bypass_memo": self.fresh or None}
        return {key: value for key, value in values.items() if value is not None}

    def items_factory(self) -> ItemsFactory:
        """Returns a function that builds the items from the plan's parameters.

        Raises:
            Problem: there are no items.
        """
        if self.manifest:
            file = self.manifest
            next(manifest.rows(file), None)  # checks the file before services are started
            return lambda parameters: items.of_manifest(file, parameters, items.settings(self.settings, parameters))
        found = items.files_of_folder(self.folder, self.out) if self.folder else items.files_of_patterns(self.patterns)
        return lambda parameters: items.of_files(found, parameters, items.settings(self.settings, parameters))


def start(request: BatchRequest, view: View) -> FollowedBatch:
    """Starts a batch, follows it to its end and saves its results. Ctrl-C cancels the batch."""
    request.check()
    make_items = request.items_factory()
    plan = request_files.read_plan(request.plan) if request.plan else []
    folder = Folder(request.out)
    folder.prepare()
    folder.check_free()
    try:
        with gateway(request.url, view.busy, request.api_key) as client:
            view.busy("")
            source = _source(client, request, plan)
            each = make_items(source.parameters)
            batch_id = _start_batch(client, request, source, each, view)
            folder.claim(batch_id)
            view.started(f"{batch_id}: {report.items(each.count)}; resume if interrupted: {folder.resume_hint}")
            return follow.finish(client, batch_id, folder, view)
    finally:
        view.close()


def _source(client: HuggingGPT, request: BatchRequest, plan: list[Any]) -> Source:
    if request.pipeline:
        return plan_source.from_pipeline(client, request.pipeline)
    return plan_source.from_plan(plan, request.plan) if request.plan else plan_source.from_request(request.request)


def _start_batch(client: HuggingGPT, request: BatchRequest, source: Source, items: Items, view: View) -> str:
    if request.request:
        view.busy("planning")
        source = plan_source.plan_on_first_item(
            client, source, items, request.options(), view, is_confirmed=request.is_confirmed
        )
    values = {**source.options, **request.options(), "max_at_once": request.max_at_once}
    batch = client.start_batch(items, on_ready=lambda done: view.sent(done, items.count), **cast(BatchOptions, values))
    return batch.batch_id

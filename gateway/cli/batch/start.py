"""hugginggpt batch: inputs go in, a batch is started and followed, its results come out."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from gateway.cli import attachments
from gateway.cli.batch import finish, item_files, items, manifest, plan_source, report
from gateway.cli.batch.finish import Ended
from gateway.cli.batch.items import Items
from gateway.cli.batch.live_view import View
from gateway.cli.batch.output_folder import Folder
from gateway.cli.batch.parameters import Parameters
from gateway.cli.batch.plan_source import Source
from gateway.cli.connect import gateway
from gateway.cli.errors import USAGE, Problem
from gateway.client import BatchOptions, HuggingGPT

MakeItems = Callable[[Parameters], Items]


@dataclass(frozen=True)
class Wanted:
    """What is run on what, and where the results go."""

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
    agreed: bool = False
    """A plan made of words need not be looked at."""
    url: str | None = None
    api_key: str | None = None

    def check(self) -> None:
        """Raises Problem unless one thing is to be run on one set of items."""
        if sum(map(bool, (self.pipeline, self.request.strip(), self.plan))) != 1:
            remedy = "name a pipeline, or give one of --request and --plan"
            raise Problem("it is not clear what to run", remedy=remedy, status=USAGE)
        if sum(map(bool, (self.patterns, self.folder, self.manifest))) != 1:
            raise Problem(
                "it is not clear what to run it on", remedy="give one of --files, --folder and --items", status=USAGE
            )
        if self.request and not (self.agreed or sys.stdin.isatty()):
            remedy = 'add --yes, or keep a plan first: hugginggpt ask "…" --file FILE --save NAME'
            raise Problem("nobody is there to look at the plan", remedy=remedy, status=USAGE)

    def options(self) -> dict[str, Any]:
        """What is said about each run, in the client's words."""
        told = {"policy": self.policy, "inference_mode": self.mode, "bypass_memo": self.fresh or None}
        return {key: value for key, value in told.items() if value is not None}

    def making_items(self) -> MakeItems:
        """How its items are made, once it is known what they go into.

        Raises:
            Problem: there are none.
        """
        if self.manifest:
            file = self.manifest
            next(manifest.rows(file), None)  # before a house is started for it
            return lambda taken: items.of_manifest(file, taken, items.settings(self.settings, taken))
        found = item_files.of_folder(self.folder, self.out) if self.folder else item_files.of_patterns(self.patterns)
        return lambda taken: items.of_files(found, taken, items.settings(self.settings, taken))


def start(wanted: Wanted, view: View) -> Ended:
    """Starts a batch, follows it to its end and saves its results. Ctrl-C cancels it."""
    wanted.check()
    making = wanted.making_items()
    plan = attachments.read_plan(wanted.plan) if wanted.plan else []
    folder = Folder(wanted.out)
    folder.prepare()
    folder.check_free()
    try:
        with gateway(wanted.url, view.busy, wanted.api_key) as house:
            view.busy("")
            source = _source(house, wanted, plan)
            each = making(source.takes)
            batch_id = _started(house, wanted, source, each, view)
            folder.claim(batch_id)
            view.begun(f"{batch_id}: {report.items(each.count)}; go on after a break: {folder.going_on}")
            return finish.finish(house, batch_id, folder, view)
    finally:
        view.close()


def _source(house: HuggingGPT, wanted: Wanted, plan: list[Any]) -> Source:
    if wanted.pipeline:
        return plan_source.kept(house, wanted.pipeline)
    return plan_source.supplied(plan, wanted.plan) if wanted.plan else plan_source.worded(wanted.request)


def _started(house: HuggingGPT, wanted: Wanted, source: Source, items: Items, view: View) -> str:
    if wanted.request:
        view.busy("planning")
        source = plan_source.made(house, source, items, wanted.options(), view, agreed=wanted.agreed)
    told = {**source.told, **wanted.options(), "max_at_once": wanted.max_at_once}
    batch = house.start_batch(items, on_ready=lambda done: view.sent(done, items.count), **cast(BatchOptions, told))
    return batch.batch_id

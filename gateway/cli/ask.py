"""Starts the run of hugginggpt ask and run, follows it, and saves its files and its plan."""

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from gateway.cli import follow, pipelines, request_files
from gateway.cli.batch import items, plan_source
from gateway.cli.connect import gateway
from gateway.cli.errors import USAGE, Problem
from gateway.cli.follow import FollowedRun
from gateway.cli.live_view import View
from gateway.cli.options import STDIN
from gateway.client import Event, HuggingGPT, HuggingGPTError, Options, Source
from gateway.client.options import DataPolicy
from services.common.settings import home

MAX_DESCRIPTION = 500
"""Characters of the request that become the pipeline's description."""


@dataclass(frozen=True)
class AskRequest:
    """Options of hugginggpt ask and run."""

    request: str
    files: Sequence[str]
    out: Path
    url: str | None = None
    api_key: str | None = None
    policy: str | None = None
    mode: str | None = None
    licenses: Sequence[str] = ()
    plan: Path | None = None
    timeout: float | None = None
    fresh: bool = False
    review: bool = False
    continues_last: bool = False
    after: str | None = None
    save_as: str = ""
    """Name under which the plan is saved."""
    pin: bool = False
    pipeline: str = ""
    """A saved pipeline to run instead of the request."""
    settings: Sequence[str] = ()
    """Values of the pipeline's parameters, each as PARAMETER=VALUE."""

    def check(self) -> None:
        """Raises Problem if --save, --pin and --review do not fit together."""
        if self.save_as:
            pipelines.check_name(self.save_as)
        if self.pin and not self.save_as:
            raise Problem("--pin needs --save", remedy="add --save NAME", status=USAGE)
        if self.save_as and self.review:
            remedy = f"save the plan after the run: hugginggpt save RUN {self.save_as}"
            raise Problem("--review and --save cannot be combined: --review only plans", remedy=remedy, status=USAGE)

    def request_text(self) -> str:
        """The request, read from standard input if it is `-`.

        Raises:
            Problem: the request cannot be sent.
        """
        if self.request == STDIN and STDIN in self.files:
            remedy = "give the request as an argument, or the file by its path"
            raise Problem("standard input cannot be both the request and a file", remedy=remedy, status=USAGE)
        request = request_files.read_request() if self.request == STDIN else self.request
        request_files.check_request(request, has_plan=bool(self.plan or self.pipeline))
        return request

    def options(self) -> Options:
        """The options of the client's call.

        Raises:
            Problem: the plan cannot be read, or there is no earlier run to continue.
        """
        options: dict[str, Any] = {
            "plan": request_files.read_plan(self.plan) if self.plan else None,
            "pipeline": self.pipeline or None,
            "policy": self.policy,
            "inference_mode": self.mode,
            "constraints": {"licenses": list(self.licenses)} if self.licenses else None,
            "budget": {"wall_time": self.timeout} if self.timeout else None,
            "bypass_memo": self.fresh or None,
            "mode": "approve" if self.review else None,
            "conversation": self.after or (_last_run() if self.continues_last else None),
        }
        return cast(Options, {key: value for key, value in options.items() if value is not None})


def start_and_follow(ask_request: AskRequest, view: View) -> FollowedRun:
    """Starts a run, follows it to its end and saves its files. Ctrl-C cancels the run."""
    ask_request.check()
    request, options = ask_request.request_text(), ask_request.options()
    files = request_files.sources([name for name in ask_request.files if name != STDIN])
    follow.open_folder(ask_request.out)
    try:
        with request_files.attached_standard_input(
            named=STDIN in ask_request.files, is_request=ask_request.request == STDIN
        ) as stdin:
            return _run_and_follow(ask_request, request, [*files, *([stdin] if stdin else [])], options, view)
    finally:
        view.close()


def _run_and_follow(
    ask_request: AskRequest, request: str, files: Sequence[Source], options: Options, view: View
) -> FollowedRun:
    followed = FollowedRun()
    with (
        gateway(ask_request.url, view.busy, ask_request.api_key, view.sent) as client,
        follow.cancel_on_interrupt(client, followed.progress),
    ):
        if ask_request.settings:
            options = {**options, **_with_parameters(client, ask_request)}
        view.busy("starting" if ask_request.pipeline else "planning")
        with closing(client.stream(request, files, **options)) as events:
            follow.follow(client, _recording_last_run(events), followed.progress, view)
        follow.save(client, followed, ask_request.out)
        if ask_request.save_as:
            _save_plan(
                client, followed, ask_request.save_as, request, policy=options.get("policy"), pin=ask_request.pin
            )
    return followed


def _with_parameters(client: HuggingGPT, ask_request: AskRequest) -> Options:
    """The pipeline, with its parameters as given by --set."""
    source = plan_source.from_pipeline(client, ask_request.pipeline)
    return {"pipeline": source.options["pipeline"], "inputs": items.settings(ask_request.settings, source.parameters)}


def _recording_last_run(events: Iterator[Event]) -> Iterator[Event]:
    for number, event in enumerate(events):
        if not number:
            _store_last_run(event.run_id)
        yield event


def _save_plan(
    client: HuggingGPT, followed: FollowedRun, name: str, request: str, *, policy: DataPolicy | None, pin: bool
) -> None:
    """Saves the plan of a completed run; stores the reason if that is impossible."""
    run = followed.run
    if not run.is_completed:
        remedy = f"to save it anyway: hugginggpt save {run.run_id} {name}"
        followed.pipeline_problem = Problem(f"the plan is not saved as {name}: the run is {run.state}", remedy=remedy)
        return
    try:
        description = request.strip()[:MAX_DESCRIPTION]
        followed.pipeline = client.save_pipeline(
            name, run.run_id, description=description, policy=policy, pin_models=pin
        )
    except HuggingGPTError as error:
        followed.pipeline_problem = Problem.of(error)


def _store_last_run(run_id: str) -> None:
    """Stores the id of the last run for --continue; does nothing if the home folder is not writable."""
    with suppress(OSError):
        file = _last_run_file()
        file.parent.mkdir(parents=True, exist_ok=True)
        written = file.with_suffix(".new")
        written.write_text(run_id + "\n", "utf-8")
        written.replace(file)


def _last_run() -> str:
    """Id of the last run started from this home folder; raises Problem if there is none."""
    with suppress(OSError, UnicodeDecodeError):
        if run_id := _last_run_file().read_text("utf-8").strip():
            return run_id
    remedy = "give a run with --after; hugginggpt runs lists them"
    raise Problem("there is no earlier run to continue", remedy=remedy, status=USAGE)


def _last_run_file() -> Path:
    return home() / "last-run"

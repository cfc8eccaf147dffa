"""hugginggpt ask: a request goes in, a run is followed, an answer and files come out."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from gateway.cli import attachments, follow, last_run, save_command, standard_input
from gateway.cli.batch import items, plan_source
from gateway.cli.connect import gateway
from gateway.cli.errors import USAGE, Problem
from gateway.cli.follow import Answered
from gateway.cli.live_view import View
from gateway.cli.standard_input import STDIN
from gateway.client import Event, HuggingGPT, Options, Source


@dataclass(frozen=True)
class Question:
    """What is asked, and where the answer's files go."""

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
    goes_on: bool = False
    after: str | None = None
    keep: str = ""
    """What the plan is to be called afterwards."""
    pin: bool = False
    pipeline: str = ""
    """A kept plan, in place of the request."""
    settings: Sequence[str] = ()
    """What its parameters are, each as PARAMETER=VALUE."""

    def check(self) -> None:
        """Raises Problem if the plan cannot be kept as it is wanted."""
        if self.keep:
            save_command.check_name(self.keep)
        if self.pin and not self.keep:
            raise Problem("--pin is for a plan that is kept", remedy="add --save NAME", status=USAGE)
        if self.keep and self.review:
            remedy = f"keep it once it has run: hugginggpt save RUN {self.keep}"
            raise Problem("--review only plans, and --save keeps what has run", remedy=remedy, status=USAGE)

    def words(self) -> str:
        """The request; that of standard input, if it is named.

        Raises:
            Problem: it cannot be sent.
        """
        if self.request == STDIN and STDIN in self.files:
            remedy = "give the request in words, or the file by its name"
            raise Problem("standard input is either the request or a file", remedy=remedy, status=USAGE)
        request = standard_input.request() if self.request == STDIN else self.request
        attachments.check_request(request, has_plan=bool(self.plan or self.pipeline))
        return request

    def options(self) -> Options:
        """As the client takes them.

        Raises:
            Problem: the plan cannot be read, or there is nothing to continue.
        """
        options: dict[str, Any] = {
            "plan": attachments.read_plan(self.plan) if self.plan else None,
            "pipeline": self.pipeline or None,
            "policy": self.policy,
            "inference_mode": self.mode,
            "constraints": {"licenses": list(self.licenses)} if self.licenses else None,
            "budget": {"wall_time": self.timeout} if self.timeout else None,
            "bypass_memo": self.fresh or None,
            "mode": "approve" if self.review else None,
            "conversation": self.after or (last_run.last() if self.goes_on else None),
        }
        return cast(Options, {key: value for key, value in options.items() if value is not None})


def ask(question: Question, view: View) -> Answered:
    """Asks, follows the run to its end and saves what it made. Ctrl-C cancels the run."""
    question.check()
    request, options = question.words(), question.options()
    files = attachments.sources([name for name in question.files if name != STDIN])
    follow.open_folder(question.out)
    try:
        with standard_input.attached(named=STDIN in question.files, taken=question.request == STDIN) as stdin:
            return _asked(question, request, [*files, *([stdin] if stdin else [])], options, view)
    finally:
        view.close()


def _asked(question: Question, request: str, files: Sequence[Source], options: Options, view: View) -> Answered:
    answered = Answered()
    with (
        gateway(question.url, view.busy, question.api_key, view.sent) as house,
        follow.cancelling(house, answered.run),
    ):
        if question.settings:
            options = {**options, **_filled(house, question)}
        view.busy("starting" if question.pipeline else "planning")
        with closing(house.stream(request, files, **options)) as events:
            follow.follow(house, _remembered(events), answered.run, view)
        follow.save(house, answered, question.out)
        if question.keep:
            save_command.keep(house, answered, question.keep, request, policy=options.get("policy"), pin=question.pin)
    return answered


def _filled(house: HuggingGPT, question: Question) -> Options:
    """The pipeline, with what --set says of its parameters."""
    source = plan_source.kept(house, question.pipeline)
    return {"pipeline": source.told["pipeline"], "inputs": items.settings(question.settings, source.takes)}


def _remembered(events: Iterator[Event]) -> Iterator[Event]:
    for number, event in enumerate(events):
        if not number:
            last_run.remember(event.run_id)
        yield event

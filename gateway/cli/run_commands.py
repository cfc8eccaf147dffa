"""hugginggpt watch, runs, approve, cancel and get."""

import re
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from rich.text import Text

from gateway.cli import attachments, follow, terminal
from gateway.cli.connect import gateway
from gateway.cli.errors import INTERRUPTED, Problem
from gateway.cli.follow import Answered
from gateway.cli.live_view import View, one_line
from gateway.client import Artifact, HuggingGPT, KeptFile, Run

_DIGEST = re.compile(r"[0-9a-f]{64}")


def watch(run_id: str, view: View, url: str | None, api_key: str | None) -> Answered:
    """Follows a run without stopping it, whatever happens here."""
    answered = Answered()
    try:
        with gateway(url, view.busy, api_key) as house, closing(house.watch(run_id)) as events:
            view.busy("looking")
            follow.follow(house, events, answered.run, view)
    except KeyboardInterrupt:
        raise Problem("no longer watched; the run goes on", status=INTERRUPTED) from None
    finally:
        view.close()
    return answered


def approve(run_id: str, plan: Path | None, out: Path, view: View, *, url: str | None, api_key: str | None) -> Answered:
    """Lets a run go on, follows it to its end and saves what it made. Ctrl-C cancels it."""
    tasks = attachments.read_plan(plan) if plan else None
    follow.open_folder(out)
    answered = Answered()
    try:
        with gateway(url, view.busy, api_key) as house, follow.cancelling(house, answered.run):
            view.busy("approving")
            house.approve(run_id, tasks)
            with closing(house.watch(run_id)) as events:
                follow.follow(house, events, answered.run, view, to_the_end=True)
            follow.save(house, answered, out)
    finally:
        view.close()
    return answered


def show(states: Sequence[str], limit: int, page: str, url: str | None, api_key: str | None, *, as_json: bool) -> None:
    """Prints a page of runs."""
    with asking(url, api_key) as house:
        listed = house.runs(states=states, page_size=limit, page_token=page)
    if as_json:
        more = {"next_page": listed.next} if listed.next else {}
        terminal.tell_json({"runs": [run.model_dump(mode="json") for run in listed], **more})
        return
    for run in listed:
        terminal.out().print(_line(run), soft_wrap=True)
    if listed.next:
        terminal.err().print(f"more: hugginggpt runs --page {listed.next}", soft_wrap=True)


def cancel(run_id: str, url: str | None, api_key: str | None) -> str:
    """Asks a run to stop; returns its state afterwards."""
    with asking(url, api_key) as house:
        house.cancel(run_id)
        return house.get(run_id).state


def get(what: str, out: Path, url: str | None, api_key: str | None, *, as_json: bool) -> None:
    """Saves what is meant, and tells where it is.

    Raises:
        Problem: there is nothing to save, or it cannot be written.
    """
    follow.open_folder(out)
    with asking(url, api_key) as house:
        paths = house.save(_meant(house, what), out)
    if not paths:
        raise Problem(f"{what} made no files", remedy=f"its answer: hugginggpt watch {what}")
    if as_json:
        terminal.tell_json({"saved": [str(path) for path in paths]})
    for path in paths if not as_json else ():
        terminal.out().print(f"saved {one_line(str(path))}", soft_wrap=True)


def _meant(house: HuggingGPT, what: str) -> Run | KeptFile | Artifact:
    if _DIGEST.fullmatch(what):
        return house.artifact(what)
    return house.file(what) if what.startswith("file_") else house.get(what)


@contextmanager
def asking(url: str | None, api_key: str | None) -> Iterator[HuggingGPT]:
    with (
        terminal.err().status("asking the gateway") as status,
        gateway(url, lambda what: status.update(what or "asking the gateway"), api_key) as house,
    ):
        yield house


def _line(run: Run) -> Text:
    begun = run.create_time.astimezone().strftime("%Y-%m-%d %H:%M") if run.create_time else ""
    request = one_line(" ".join(str(run.spec.get("request", "")).split()))
    return Text.assemble((run.run_id, "bold"), f"  {run.state:<17}  {begun}  ", (request[:80], "dim"))

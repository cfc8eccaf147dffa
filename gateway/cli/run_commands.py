"""Implementation of hugginggpt watch, runs, approve, cancel and get."""

import re
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from rich.text import Text

from gateway.cli import attachments, follow, terminal
from gateway.cli.connect import gateway
from gateway.cli.errors import INTERRUPTED, Problem
from gateway.cli.follow import FollowedRun
from gateway.cli.live_view import View, one_line
from gateway.client import Artifact, HuggingGPT, KeptFile, Run

_DIGEST = re.compile(r"[0-9a-f]{64}")


def watch(run_id: str, view: View, url: str | None, api_key: str | None) -> FollowedRun:
    """Follows a run; Ctrl-C does not cancel it."""
    answered = FollowedRun()
    try:
        with gateway(url, view.busy, api_key) as client, closing(client.watch(run_id)) as events:
            view.busy("connecting to the run")
            follow.follow(client, events, answered.run, view)
    except KeyboardInterrupt:
        raise Problem("stopped watching; the run continues", status=INTERRUPTED) from None
    finally:
        view.close()
    return answered


def approve(
    run_id: str, plan: Path | None, out: Path, view: View, *, url: str | None, api_key: str | None
) -> FollowedRun:
    """Approves the plan of a run, follows the run to its end and saves its files. Ctrl-C cancels the run."""
    tasks = attachments.read_plan(plan) if plan else None
    follow.open_folder(out)
    answered = FollowedRun()
    try:
        with gateway(url, view.busy, api_key) as client, follow.cancel_on_interrupt(client, answered.run):
            view.busy("approving")
            client.approve(run_id, tasks)
            with closing(client.watch(run_id)) as events:
                follow.follow(client, events, answered.run, view, is_approved=True)
            follow.save(client, answered, out)
    finally:
        view.close()
    return answered


def show(states: Sequence[str], limit: int, page: str, url: str | None, api_key: str | None, *, as_json: bool) -> None:
    """Prints a page of runs."""
    with connected_gateway(url, api_key) as client:
        listed = client.runs(states=states, page_size=limit, page_token=page)
    if as_json:
        more = {"next_page": listed.next} if listed.next else {}
        terminal.print_json({"runs": [run.model_dump(mode="json") for run in listed], **more})
        return
    for run in listed:
        terminal.out().print(_line(run), soft_wrap=True)
    if listed.next:
        terminal.err().print(f"more: hugginggpt runs --page {listed.next}", soft_wrap=True)


def cancel(run_id: str, url: str | None, api_key: str | None) -> str:
    """Cancels a run; returns its state afterwards."""
    with connected_gateway(url, api_key) as client:
        client.cancel(run_id)
        return client.get(run_id).state


def get(what: str, out: Path, url: str | None, api_key: str | None, *, as_json: bool) -> None:
    """Saves the files of a run, a stored file or an artifact, and prints the paths.

    Raises:
        Problem: there are no files, or they cannot be written.
    """
    follow.open_folder(out)
    with connected_gateway(url, api_key) as client:
        paths = client.save(_meant(client, what), out)
    if not paths:
        raise Problem(f"{what} has no output files", remedy=f"print its answer: hugginggpt watch {what}")
    if as_json:
        terminal.print_json({"saved": [str(path) for path in paths]})
    for path in paths if not as_json else ():
        terminal.out().print(f"saved {one_line(str(path))}", soft_wrap=True)


def _meant(client: HuggingGPT, what: str) -> Run | KeptFile | Artifact:
    if _DIGEST.fullmatch(what):
        return client.artifact(what)
    return client.file(what) if what.startswith("file_") else client.get(what)


@contextmanager
def connected_gateway(url: str | None, api_key: str | None) -> Iterator[HuggingGPT]:
    with (
        terminal.err().status("connecting to the gateway") as status,
        gateway(url, lambda what: status.update(what or "connecting to the gateway"), api_key) as client,
    ):
        yield client


def _line(run: Run) -> Text:
    created = run.create_time.astimezone().strftime("%Y-%m-%d %H:%M") if run.create_time else ""
    request = one_line(" ".join(str(run.spec.get("request", "")).split()))
    return Text.assemble((run.run_id, "bold"), f"  {run.state:<17}  {created}  ", (request[:80], "dim"))

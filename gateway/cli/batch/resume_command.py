"""Implementation of hugginggpt resume and batches, and of watch, cancel and get for batches."""

from collections.abc import Sequence
from pathlib import Path

from gateway.cli import terminal
from gateway.cli.batch import finish, live_view, report
from gateway.cli.batch.finish import FollowedBatch
from gateway.cli.batch.live_view import View
from gateway.cli.batch.output_folder import Folder
from gateway.cli.connect import gateway
from gateway.cli.errors import INTERRUPTED, Problem
from gateway.cli.run_commands import connected_gateway

PREFIX = "batch_"


def is_batch(what: str) -> bool:
    """Whether an id is that of a batch."""
    return what.startswith(PREFIX)


def id_key(what: str) -> str:
    """Key of an id in the JSON output."""
    return "batch_id" if is_batch(what) else "run_id"


def resume(
    batch_id: str, out: Path, view: View, *, failed_only: bool, url: str | None, api_key: str | None
) -> FollowedBatch:
    """Resumes a batch, follows it to its end and saves all results. Ctrl-C cancels the batch."""
    folder = _prepare_folder(batch_id, out)
    try:
        with gateway(url, view.busy, api_key) as client:
            view.busy("")
            client.resume_batch(batch_id, failed_only=failed_only)
            folder.claim(batch_id)
            return finish.finish(client, batch_id, folder, view)
    finally:
        view.close()


def watch(batch_id: str, url: str | None, api_key: str | None, *, as_json: bool) -> int:
    """Follows a batch and prints its summary; returns the exit status. Ctrl-C does not cancel the batch."""
    view = live_view.view(as_json=as_json)
    try:
        with gateway(url, view.busy, api_key) as client:
            view.busy("")
            ended = finish.watch(client, batch_id, view)
    except KeyboardInterrupt:
        raise Problem("stopped watching; the batch continues", status=INTERRUPTED) from None
    finally:
        view.close()
    report.print_summary(ended, as_json=as_json)
    return ended.status


def get(batch_id: str, out: Path, url: str | None, api_key: str | None, *, as_json: bool) -> int:
    """Saves the present results of a batch and prints its summary; returns the exit status."""
    folder = _prepare_folder(batch_id, out)
    view = live_view.view(as_json=as_json)
    try:
        with gateway(url, view.busy, api_key) as client:
            client.batch(batch_id)  # raises before the folder is claimed if the batch does not exist
            folder.claim(batch_id)
            ended = finish.save(client, batch_id, folder)
    finally:
        view.close()
    report.print_summary(ended, as_json=as_json)
    return ended.status


def show(states: Sequence[str], limit: int, page: str, url: str | None, api_key: str | None, *, as_json: bool) -> None:
    """Prints a page of batches."""
    with connected_gateway(url, api_key) as client:
        listed = client.batches(states=states, page_size=limit, page_token=page)
    if as_json:
        more = {"next_page": listed.next} if listed.next else {}
        terminal.print_json({"batches": [batch.model_dump(mode="json") for batch in listed], **more})
        return
    for batch in listed:
        terminal.out().print(report.line(batch), soft_wrap=True)
    if listed.next:
        terminal.err().print(f"more: hugginggpt batches --page {listed.next}", soft_wrap=True)


def cancel(batch_id: str, url: str | None, api_key: str | None) -> str:
    """Cancels a batch; returns its state afterwards."""
    with connected_gateway(url, api_key) as client:
        client.cancel_batch(batch_id)
        return client.batch(batch_id).state


def _prepare_folder(batch_id: str, out: Path) -> Folder:
    folder = Folder(out)
    folder.prepare()
    folder.check_free(batch_id)
    return folder

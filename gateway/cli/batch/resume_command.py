"""hugginggpt resume and batches; watch, cancel and get of a batch."""

from collections.abc import Sequence
from pathlib import Path

from gateway.cli import terminal
from gateway.cli.batch import finish, report
from gateway.cli.batch.finish import Ended
from gateway.cli.batch.live_view import View, view
from gateway.cli.batch.output_folder import Folder
from gateway.cli.connect import gateway
from gateway.cli.errors import INTERRUPTED, Problem
from gateway.cli.run_commands import asking

PREFIX = "batch_"


def is_batch(what: str) -> bool:
    """Whether this is the id of a batch."""
    return what.startswith(PREFIX)


def id_key(what: str) -> str:
    """What an id is called in JSON."""
    return "batch_id" if is_batch(what) else "run_id"


def resume(batch_id: str, out: Path, seen: View, *, failed_only: bool, url: str | None, api_key: str | None) -> Ended:
    """Lets the items run that have not, follows the batch to its end and saves all its results. Ctrl-C cancels it."""
    folder = _claimable(batch_id, out)
    try:
        with gateway(url, seen.busy, api_key) as house:
            seen.busy("")
            house.resume_batch(batch_id, failed_only=failed_only)
            folder.claim(batch_id)
            return finish.finish(house, batch_id, folder, seen)
    finally:
        seen.close()


def watch(batch_id: str, url: str | None, api_key: str | None, *, as_json: bool) -> int:
    """Follows a batch without stopping it, whatever happens here, and tells how it ended; gives the exit status."""
    seen = view(as_json=as_json)
    try:
        with gateway(url, seen.busy, api_key) as house:
            seen.busy("")
            ended = finish.watch(house, batch_id, seen)
    except KeyboardInterrupt:
        raise Problem("no longer watched; the batch goes on", status=INTERRUPTED) from None
    finally:
        seen.close()
    report.tell(ended, as_json=as_json)
    return ended.status


def get(batch_id: str, out: Path, url: str | None, api_key: str | None, *, as_json: bool) -> int:
    """Saves the results of a batch as it stands, and tells of them; gives the exit status."""
    folder = _claimable(batch_id, out)
    seen = view(as_json=as_json)
    try:
        with gateway(url, seen.busy, api_key) as house:
            house.batch(batch_id)  # of another one the folder is not
            folder.claim(batch_id)
            ended = finish.save(house, batch_id, folder)
    finally:
        seen.close()
    report.tell(ended, as_json=as_json)
    return ended.status


def show(states: Sequence[str], limit: int, page: str, url: str | None, api_key: str | None, *, as_json: bool) -> None:
    """Prints a page of batches."""
    with asking(url, api_key) as house:
        listed = house.batches(states=states, page_size=limit, page_token=page)
    if as_json:
        more = {"next_page": listed.next} if listed.next else {}
        terminal.tell_json({"batches": [batch.model_dump(mode="json") for batch in listed], **more})
        return
    for batch in listed:
        terminal.out().print(report.line(batch), soft_wrap=True)
    if listed.next:
        terminal.err().print(f"more: hugginggpt batches --page {listed.next}", soft_wrap=True)


def cancel(batch_id: str, url: str | None, api_key: str | None) -> str:
    """Asks a batch to stop; returns its state afterwards."""
    with asking(url, api_key) as house:
        house.cancel_batch(batch_id)
        return house.batch(batch_id).state


def _claimable(batch_id: str, out: Path) -> Folder:
    folder = Folder(out)
    folder.prepare()
    folder.check_free(batch_id)
    return folder

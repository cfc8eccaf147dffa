"""hugginggpt record and verify."""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from rich.text import Text

from gateway.cli import terminal
from gateway.cli.live_view import one_line
from gateway.cli.run_commands import asking

Told = Mapping[str, Any]

_STYLES = {"same": "green", "not_comparable": "dim", "different": "red", "gone": "red", "failed": "red"}
_DIGITS = 12
"""Of a digest, as people compare them; the whole is in the JSON."""


def show(run_id: str, url: str | None, api_key: str | None, *, as_json: bool) -> None:
    """Prints a record."""
    with asking(url, api_key) as house:
        record = house.fetch(f"{_path(run_id)}/record")
    if as_json:
        terminal.tell_json(record)
        return
    for line in _lines(record):
        terminal.out().print(one_line(line), soft_wrap=True)


def verify(run_id: str, url: str | None, api_key: str | None, *, as_json: bool) -> bool:
    """Has a run done again and prints what came of it; whether it is the same."""
    with asking(url, api_key) as house:
        found = house.verify(run_id)
        if not found["ended"]:
            again = found["again_run_id"]
            house.wait(again)
            found = house.fetch(f"{_path(run_id)}/verifications/{quote(again, safe='')}")
    if as_json:
        terminal.tell_json(found)
    else:
        _tell(found)
    return bool(found["verified"])


def _path(run_id: str) -> str:
    return f"/v1/runs/{quote(run_id, safe='')}"


def _lines(record: Told) -> Iterator[str]:
    asker = record.get("caller", {})
    who = " with key ".join(filter(None, (f"tenant {asker.get('tenant', '?')}", asker.get("key_id", ""))))
    policy = record.get("policy", "?")
    yield f"{record['run_id']}  {record['state']}  created {record['create_time']} by {who}, policy {policy}"
    if "request" in record:
        yield f"  request      {_digest(record['request'])}"
    for place, digest in enumerate(record["inputs"], start=1):
        yield f"  input {place:<6} {_digest(digest)}"
    for decision in record["planning"]:
        yield f"  planned by   {_decider(decision)}"
    for task in record["tasks"]:
        yield from _task(task)
    if "answering" in record:
        yield f"  answered by  {_decider(record['answering'])}"
    if "answer" in record:
        yield f"  answer       {_digest(record['answer'])}"


def _task(task: Told) -> Iterator[str]:
    facts = [task.get("state", ""), task.get("determinism", ""), f"seed {task['seed']}" if task["seed"] else ""]
    facts.append(f"from run {task.get('reused_from_run', '?')}" if task["reused"] else "")
    yield f"  task {task['id']:<7} {task['task']}  {', '.join(filter(None, facts))}"
    if "model" in task:
        yield f"    by           {_model(task['model'])}"
    for attempt in task["attempts"]:
        if attempt.get("reason"):
            yield f"    attempt {attempt['attempt']:<4} {_model(attempt.get('model', {}))}: {attempt['reason']}"
    for parameter in task["parameters"]:
        yield f"    {parameter['name']:<12} {_parameter(parameter)}"
    for argument in task["arguments"]:
        yield f"    in  {argument['port']:<8} {_digest(argument.get('value', {}))}"
    for port, digest in task["outputs"].items():
        yield f"    out {port:<8} {_digest(digest)}"


def _parameter(parameter: Told) -> str:
    if "digest" in parameter:
        return _digest(parameter["digest"])
    return str(parameter.get("number", parameter.get("flag")))


def _digest(digest: Told) -> str:
    if not digest:
        return "nothing"
    kind = digest.get("media_type") or digest.get("kind", "")
    return f"sha256:{digest['sha256'][:_DIGITS]}  {kind}, {digest['size_bytes']} bytes"


def _model(model: Told) -> str:
    commit = model.get("revision") or "unknown commit"
    expert = " ".join(filter(None, (model.get("expert", ""), model.get("expert_version", ""))))
    return f"{model.get('model_id', '?')}@{commit} on {expert}"


def _decider(decision: Told) -> str:
    facts = (decision.get("controller", "nobody"), decision.get("llm_model", ""), decision.get("version", ""))
    return "  ".join(filter(None, facts)) + ("  (in place of another)" if decision["fell_back"] else "")


def _tell(found: Told) -> None:
    console = terminal.out()
    for task in found["tasks"]:
        outcome = task["outcome"]
        said = Text.assemble(f"task {task['id']} {task['task']}: ", (outcome.replace("_", " "), _STYLES[outcome]))
        if "model" in task:
            said.append(f"  {one_line(_model(task['model']))}", "dim")
        console.print(said, soft_wrap=True)
        for finding in task["findings"]:
            console.print(f"  {one_line(finding)}", soft_wrap=True, markup=False)
    again = found.get("again_run_id", "")
    same = any(task["outcome"] == "same" for task in found["tasks"])
    whole = "NOT the same" if not found["verified"] else "the same" if same else "nothing can be compared"
    console.print(whole + (f", done again by run {again}" if again else ""), soft_wrap=True)

"""Commands for the provenance record of a run: show it, and verify it by repeating the run."""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import typer
from rich.text import Text

from gateway.cli import terminal
from gateway.cli.connect import connected_gateway
from gateway.cli.options import ApiKey, Json, RunId, Url
from gateway.cli.terminal import one_line

JsonObject = Mapping[str, Any]

_STYLES = {"same": "green", "not_comparable": "dim", "different": "red", "gone": "red", "failed": "red"}
_DIGITS = 12
"""Shown digits of a digest; --json has all."""


def record(run: RunId, url: Url = None, api_key: ApiKey = None, as_json: Json = False) -> None:
    """Show the provenance record of a finished run: models, commits, parameters, seeds and digests, but no content.

    --json prints the complete record; the gateway serves its schema at /v1/schemas/record.

    [bold]Example[/]

      hugginggpt record run_19a2b3c4d5e6f708192a3b4 --json > record.json
    """
    with terminal.problems_reported():
        with connected_gateway(url, api_key) as client:
            content = client.fetch(f"{_path(run)}/record")
        if as_json:
            terminal.print_json(content)
        else:
            for line in _lines(content):
                terminal.out().print(one_line(line), soft_wrap=True)


def _path(run_id: str) -> str:
    return f"/v1/runs/{quote(run_id, safe='')}"


def _lines(record: JsonObject) -> Iterator[str]:
    caller = record.get("caller", {})
    owner = " with key ".join(filter(None, (f"tenant {caller.get('tenant', '?')}", caller.get("key_id", ""))))
    policy = record.get("policy", "?")
    yield f"{record['run_id']}  {record['state']}  created {record['create_time']} by {owner}, policy {policy}"
    if "request" in record:
        yield f"  request      {_digest(record['request'])}"
    for number, digest in enumerate(record["inputs"], start=1):
        yield f"  input {number:<6} {_digest(digest)}"
    for decision in record["planning"]:
        yield f"  planned by   {_describe_decision(decision)}"
    for task in record["tasks"]:
        yield from _task(task)
    if "answering" in record:
        yield f"  answered by  {_describe_decision(record['answering'])}"
    if "answer" in record:
        yield f"  answer       {_digest(record['answer'])}"


def _task(task: JsonObject) -> Iterator[str]:
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


def _parameter(parameter: JsonObject) -> str:
    if "digest" in parameter:
        return _digest(parameter["digest"])
    return str(parameter.get("number", parameter.get("flag")))


def _digest(digest: JsonObject) -> str:
    if not digest:
        return "empty"
    kind = digest.get("media_type") or digest.get("kind", "")
    return f"sha256:{digest['sha256'][:_DIGITS]}  {kind}, {digest['size_bytes']} bytes"


def _model(model: JsonObject) -> str:
    commit = model.get("revision") or "unknown commit"
    expert = " ".join(filter(None, (model.get("expert", ""), model.get("expert_version", ""))))
    return f"{model.get('model_id', '?')}@{commit} on {expert}"


def _describe_decision(decision: JsonObject) -> str:
    facts = (decision.get("controller", "unknown"), decision.get("llm_model", ""), decision.get("version", ""))
    return "  ".join(filter(None, facts)) + ("  (fallback)" if decision["fell_back"] else "")


def verify(run: RunId, url: Url = None, api_key: ApiKey = None, as_json: Json = False) -> None:
    """Repeat the deterministic tasks of a run and compare the results.

    Bit-exact tasks are compared by digest, others with a tolerance by type: scores 0.001, boxes 0.5 pixels, times 2 ms,
    images a mean difference of 1/255, audio a thousandth of full scale.

    [bold]Example[/]

      hugginggpt verify run_19a2b3c4d5e6f708192a3b4

    Exit status: 0 all comparable results are the same; 1 a result differs, or its model, commit or input is gone.
    """
    with terminal.problems_reported():
        with connected_gateway(url, api_key) as client:
            verification = client.verify(run)
            if not verification["ended"]:
                again = verification["again_run_id"]
                client.wait(again)
                verification = client.fetch(f"{_path(run)}/verifications/{quote(again, safe='')}")
        if as_json:
            terminal.print_json(verification)
        else:
            _print_verification(verification)
    raise typer.Exit(0 if verification["verified"] else 1)


def _print_verification(verification: JsonObject) -> None:
    console = terminal.out()
    for task in verification["tasks"]:
        outcome = task["outcome"]
        text = Text.assemble(f"task {task['id']} {task['task']}: ", (outcome.replace("_", " "), _STYLES[outcome]))
        if "model" in task:
            text.append(f"  {one_line(_model(task['model']))}", "dim")
        console.print(text, soft_wrap=True)
        for finding in task["findings"]:
            console.print(f"  {one_line(finding)}", soft_wrap=True, markup=False)
    again = verification.get("again_run_id", "")
    is_same = any(task["outcome"] == "same" for task in verification["tasks"])
    conclusion = (
        "NOT the same" if not verification["verified"] else "the same" if is_same else "no task can be compared"
    )
    console.print(conclusion + (f", repeated by run {again}" if again else ""), soft_wrap=True)

"""Runs the services in a network namespace, with settings that name many external addresses.

Usage: python -m tests.support.network_namespace.local_stack HOME.

Prints a line of JSON after start, and one per policy with the results of the same requests.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from experts.remote import model_facts
from experts.remote.settings import RemoteSettings
from tests.support.network_namespace import HOUSE, OUTSIDE, only_ipv4, set_up
from tests.system.conftest import ROOT, start_local_stack

SIGN = ROOT / "tests" / "data" / "sign.png"
SERVED = {
    "name": "box",
    "kind": "openai",
    "address": f"http://{OUTSIDE}:8000/v1",
    "reach": "external",
    "models": [{"name": "all", "tasks": ["summarization"]}],
}
WAIT = {"prefer": "wait=60"}
SETTLED_SECONDS = 3.0
"""Seconds within which webhooks are delivered after a run."""


def connected(home: Path) -> None:
    """Configures the network interface."""
    sys.stdout.write("here\n")
    sys.stdout.flush()
    assert sys.stdin.readline() == "connected\n"
    only_ipv4()
    set_up("ip", "address", "add", f"{HOUSE}/24", "dev", "house")
    set_up("ip", "link", "set", "house", "up")
    set_up("ip", "route", "add", "default", "via", OUTSIDE)
    names = home / "resolv.conf"
    names.write_text(f"nameserver {OUTSIDE}\noptions timeout:1 attempts:1\n")
    set_up("mount", "--bind", str(names), "/etc/resolv.conf")


def told_of_the_world(home: Path) -> dict[str, str]:
    """Settings with an LLM, providers and a model server outside the namespace."""
    served = home / "served.json"
    served.write_text(json.dumps({"servers": [SERVED]}))
    known = RemoteSettings()
    model_facts.write_cache(
        home / "remote" / "cards.json", f"{known.hub} {known.providers} {known.per_task}", model_facts.bundled_models()
    )
    return {
        "LLM_BASE_URL": f"http://{OUTSIDE}:8000/v1",
        "LLM_MODEL": "outside",
        "LLM_ATTEMPTS": "1",
        "HF_TOKEN": "hf_of_the_tests",
        "EXPERT_SERVED": str(served),
    }


def asked(http: httpx.Client, policy: str) -> dict[str, Any]:
    """Results of runs that need the planner, local experts, and external experts."""
    words = {"policy": policy, "budget": {"wall_time": 20}}
    summary = {"id": 1, "task": "summarization", "arguments": {"text": "All is well."}, "pinned_model": "box/all"}
    with SIGN.open("rb") as sign:
        spec = json.dumps({"request": "Read the text in this image and tell me whether it sounds happy", **words})
        planned = http.post("/v1/runs", files=[("spec", (None, spec)), ("file", ("sign.png", sign))], headers=WAIT)
    made = {
        "planned": planned,
        "remote": http.post("/v1/runs", json={"request": "Generate an image of a red boat", **words}, headers=WAIT),
        "served": http.post("/v1/runs", json={"plan": [summary], **words}, headers=WAIT),
        "url": http.post("/v1/runs", json={"request": "x", "inputs": [{"url": "http://a.test/b.png"}], **words}),
    }
    time.sleep(SETTLED_SECONDS)
    return {name: answer.json() for name, answer in made.items()}


def kept(http: httpx.Client, policy: str) -> dict[str, Any]:
    """Results of a pipeline and of batches under a policy, requested without one."""
    name, text = f"mood-{policy}", {"name": "note", "text": "I am so happy today"}
    mood = {"id": 1, "task": "text-classification", "arguments": {"text": {"input": "note"}}}
    summary = {"id": 1, "task": "summarization", "arguments": {"text": {"input": "note"}}, "pinned_model": "box/all"}
    items = [{"name": "first", "inputs": [text]}, {"name": "second", "inputs": [text]}]
    by_name, linked = {"pipeline": {"name": name}}, {"name": "note", "url": "http://b.test/note.txt"}
    http.put(f"/v1/pipelines/{name}", json={"plan": [mood], "policy": policy}).raise_for_status()
    made = {
        "run": http.post("/v1/runs", json={**by_name, "inputs": [text]}, headers=WAIT).json(),
        "batch": _ended(http, {**by_name, "items": items}),
        "words": _ended(http, {"request": "Tell me whether this sounds happy", "policy": policy, "items": items}),
        "outside": _ended(http, {"plan": [summary], "policy": policy, "budget": {"wall_time": 5}, "items": items}),
        "link": http.post("/v1/runs", json={**by_name, "inputs": [linked]}).json(),
        "links": _ended(http, {**by_name, "items": [{"name": "linked", "inputs": [linked]}, *items]}),
    }
    time.sleep(SETTLED_SECONDS)
    return made


def _ended(http: httpx.Client, batch: dict[str, Any]) -> Any:
    """The finished batch, or the error with which it was rejected."""
    begun = http.post("/v1/batches", json=batch)
    if begun.status_code != httpx.codes.ACCEPTED:
        return begun.json()
    place = begun.headers["location"]
    http.get(f"{place}/events")  # to its end
    return http.get(place).json()


def tell(what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main(home: Path) -> None:
    connected(home)
    settings = told_of_the_world(home)
    with (
        start_local_stack(home, "--experts", "lite,remote,served", **settings) as house,
        httpx.Client(base_url=house.url, timeout=90, trust_env=False) as http,
    ):
        tell("ready")
        hook = http.post("/v1/webhooks", json={"url": "https://hooks.test/"}).json()["id"]
        for policy in ("local", "open"):
            made = {**asked(http, policy), **kept(http, policy)}
            tell({**made, "told": http.get(f"/v1/webhooks/{hook}").json()["deliveries"]})


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""Runs the services in a network namespace, with settings that name many external addresses.

Usage: python -m tests.support.network_namespace.local_stack HOME.

Waits for its network interface, then prints a line of JSON after start, and one per policy with the results of the same
requests.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from experts.remote import model_listing
from experts.remote.settings import RemoteSettings
from tests.support.network_namespace import (
    LISTENER_ADDRESS,
    SERVICES_ADDRESS,
    SERVICES_INTERFACE,
    configure,
    disable_ipv6,
)
from tests.system.conftest import ROOT, start_local_stack

SIGN = ROOT / "tests" / "data" / "sign.png"
SERVED = {
    "name": "box",
    "kind": "openai",
    "address": f"http://{LISTENER_ADDRESS}:8000/v1",
    "location": "external",
    "models": [{"name": "all", "tasks": ["summarization"]}],
}
WAIT = {"prefer": "wait=60"}
DELIVERY_SECONDS = 3.0
"""Seconds within which webhooks are delivered after a run."""


def configure_network(home: Path) -> None:
    """Waits for the network interface and configures it."""
    sys.stdout.write("namespace created\n")
    sys.stdout.flush()
    assert sys.stdin.readline() == "connected\n"
    disable_ipv6()
    configure("ip", "address", "add", f"{SERVICES_ADDRESS}/24", "dev", SERVICES_INTERFACE)
    configure("ip", "link", "set", SERVICES_INTERFACE, "up")
    configure("ip", "route", "add", "default", "via", LISTENER_ADDRESS)
    resolver = home / "resolv.conf"
    resolver.write_text(f"nameserver {LISTENER_ADDRESS}\noptions timeout:1 attempts:1\n")
    configure("mount", "--bind", str(resolver), "/etc/resolv.conf")


def external_settings(home: Path) -> dict[str, str]:
    """Settings with an LLM, providers and a model server outside the namespace."""
    served = home / "served.json"
    served.write_text(json.dumps({"servers": [SERVED]}))
    remote = RemoteSettings()
    model_listing.write_cache(
        home / "remote" / "cards.json",
        f"{remote.hub} {remote.providers} {remote.models_per_task}",
        model_listing.read_bundled_models(),
    )
    return {
        "LLM_BASE_URL": f"http://{LISTENER_ADDRESS}:8000/v1",
        "LLM_MODEL": "outside",
        "LLM_ATTEMPTS": "1",
        "HF_TOKEN": "hf_of_the_tests",
        "EXPERT_SERVED": str(served),
    }


def run_results(http: httpx.Client, policy: str) -> dict[str, Any]:
    """Results of runs that need the planner, local experts, and external experts."""
    limits = {"policy": policy, "budget": {"wall_time": 20}}
    summary = {"id": 1, "task": "summarization", "arguments": {"text": "All is well."}, "pinned_model": "box/all"}
    with SIGN.open("rb") as sign:
        spec = json.dumps({"request": "Read the text in this image and tell me whether it sounds happy", **limits})
        planned = http.post("/v1/runs", files=[("spec", (None, spec)), ("file", ("sign.png", sign))], headers=WAIT)
    responses = {
        "planned": planned,
        "remote": http.post("/v1/runs", json={"request": "Generate an image of a red boat", **limits}, headers=WAIT),
        "served": http.post("/v1/runs", json={"plan": [summary], **limits}, headers=WAIT),
        "url": http.post("/v1/runs", json={"request": "x", "inputs": [{"url": "http://a.test/b.png"}], **limits}),
    }
    time.sleep(DELIVERY_SECONDS)
    return {name: answer.json() for name, answer in responses.items()}


def batch_results(http: httpx.Client, policy: str) -> dict[str, Any]:
    """Results of a pipeline and of batches under a policy, requested without one."""
    name, text = f"mood-{policy}", {"name": "note", "text": "I am so happy today"}
    mood = {"id": 1, "task": "text-classification", "arguments": {"text": {"input": "note"}}}
    summary = {"id": 1, "task": "summarization", "arguments": {"text": {"input": "note"}}, "pinned_model": "box/all"}
    items = [{"name": "first", "inputs": [text]}, {"name": "second", "inputs": [text]}]
    by_name, linked = {"pipeline": {"name": name}}, {"name": "note", "url": "http://b.test/note.txt"}
    http.put(f"/v1/pipelines/{name}", json={"plan": [mood], "policy": policy}).raise_for_status()
    results = {
        "run": http.post("/v1/runs", json={**by_name, "inputs": [text]}, headers=WAIT).json(),
        "batch": _ended(http, {**by_name, "items": items}),
        "planned_batch": _ended(
            http, {"request": "Tell me whether this sounds happy", "policy": policy, "items": items}
        ),
        "external_batch": _ended(
            http, {"plan": [summary], "policy": policy, "budget": {"wall_time": 5}, "items": items}
        ),
        "url_run": http.post("/v1/runs", json={**by_name, "inputs": [linked]}).json(),
        "url_batch": _ended(http, {**by_name, "items": [{"name": "linked", "inputs": [linked]}, *items]}),
    }
    time.sleep(DELIVERY_SECONDS)
    return results


def _ended(http: httpx.Client, batch: dict[str, Any]) -> Any:
    """The finished batch, or the error with which it was rejected."""
    created = http.post("/v1/pipeline-batches", json=batch)
    if created.status_code != httpx.codes.ACCEPTED:
        return created.json()
    location = created.headers["location"]
    http.get(f"{location}/events")  # to its end
    return http.get(location).json()


def send(message: Any) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main(home: Path) -> None:
    configure_network(home)
    settings = external_settings(home)
    with (
        start_local_stack(home, "--experts", "lite,remote,served", **settings) as local_stack,
        httpx.Client(base_url=local_stack.url, timeout=90, trust_env=False) as http,
    ):
        send("ready")
        hook = http.post("/v1/webhooks", json={"url": "https://hooks.test/"}).json()["id"]
        for policy in ("local", "open"):
            results = {**run_results(http, policy), **batch_results(http, policy)}
            send({**results, "deliveries": http.get(f"/v1/webhooks/{hook}").json()["deliveries"]})


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""The network inside: python -m tests.walls.house HOME. Lives in a house that has been told of many places outside.

Prints a line of JSON once it stands, and for each policy what came of the same requests.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from experts.remote import facts
from experts.remote.settings import RemoteSettings
from tests.system.conftest import ROOT, standing
from tests.walls import HOUSE, OUTSIDE, only_ipv4, set_up

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
"""What is only told after a run, such as to webhooks, is told within this."""


def connected(home: Path) -> None:
    """Plugs in the cable."""
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
    """Settings of a house that has an LLM, providers and a server outside."""
    served = home / "served.json"
    served.write_text(json.dumps({"servers": [SERVED]}))
    known = RemoteSettings()
    facts.keep(home / "remote" / "cards.json", f"{known.hub} {known.providers} {known.per_task}", facts.shipped())
    return {
        "LLM_BASE_URL": f"http://{OUTSIDE}:8000/v1",
        "LLM_MODEL": "outside",
        "LLM_ATTEMPTS": "1",
        "HF_TOKEN": "hf_of_the_tests",
        "EXPERT_SERVED": str(served),
    }


def asked(http: httpx.Client, policy: str) -> dict[str, Any]:
    """What came of runs that are planned, executed, and want what is only outside."""
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


def tell(what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main(home: Path) -> None:
    connected(home)
    settings = told_of_the_world(home)
    with (
        standing(home, "--experts", "lite,remote,served", **settings) as house,
        httpx.Client(base_url=house.url, timeout=90, trust_env=False) as http,
    ):
        tell("it stands")
        hook = http.post("/v1/webhooks", json={"url": "https://hooks.test/"}).json()["id"]
        for policy in ("local", "open"):
            made = asked(http, policy)
            tell({**made, "told": http.get(f"/v1/webhooks/{hook}").json()["deliveries"]})


if __name__ == "__main__":
    main(Path(sys.argv[1]))

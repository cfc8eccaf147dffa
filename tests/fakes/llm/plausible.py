"""Answers that a small model might give to HuggingGPT's prompts, to run the LLM code paths without a model."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.fakes.llm.doctor_answers import examined
from tests.fakes.llm.scripted_replies import Says

_DATA = re.compile(r'<data name="([^"]+)" id="([^"]+)">\n(.*?)\n</data id="\2">', re.DOTALL)
_TASK = re.compile(r"^([\w-]+): (.*) \((.*)\) -> ([^;\n]*)", re.MULTILINE)
_FILE = re.compile(r"^<(\w+)>: ([^\"\n]*)", re.MULTILINE)
_STEPS = re.compile(r"[,;.]?\s+(?:and|then|danach|puis|luego)\s+(?:then\s+)?", re.IGNORECASE)

RESULT_CHARACTERS = 600
"""Maximum number of results that an answer repeats."""


@dataclass(frozen=True)
class Offer:
    """A task as the prompt lists it: modalities by port."""

    name: str
    words: str
    takes: Mapping[str, str]
    gives: Mapping[str, str]


class Plausible:
    """A script that answers all prompts of HuggingGPT, including the doctor's.

    Args:
        plan: Plan to answer; None guesses one from the request's words.
        tokens_per_second: Speed of streaming.
    """

    def __init__(self, plan: Any = None, tokens_per_second: float | None = None) -> None:
        self._plan = plan
        self._tokens_per_second = tokens_per_second

    def __call__(self, body: Any) -> Says:
        return Says(examined(body) or self._text(body), tokens_per_second=self._tokens_per_second)

    def _text(self, body: Any) -> str:
        prompt = prompt_of(body)
        told, asked = data(prompt), role(body)
        if asked == "plan":
            return json.dumps(self._plan or guessed(prompt, told), ensure_ascii=False)
        if asked == "choice":
            first = json.loads(told["candidates"].splitlines()[0])
            return json.dumps({"id": first["id"], "reason": "it stands first"})
        results = told.get("results", "")[:RESULT_CHARACTERS]
        return "\n\n".join(part for part in ("Here is what came of it.", results, told.get("undone", "")) if part)


def prompt_of(body: Any) -> str:
    """Text of all messages of a request."""
    return "\n".join(message["content"] for message in body["messages"])


def data(prompt: str) -> dict[str, str]:
    """Quoted sections of a prompt, by name."""
    return {name: text for name, _, text in _DATA.findall(prompt)}


def role(body: Any) -> str:
    """Purpose of a request: plan, choice or answer."""
    return body.get("response_format", {}).get("json_schema", {}).get("name") or _role(prompt_of(body))


def guessed(prompt: str, data: Mapping[str, str]) -> dict[str, Any]:
    """A plan with one task per step of the request; its input is a file or the output of the step before."""
    offers = [_offer(*found) for found in _TASK.findall(prompt)]
    files = {name: kinds for name, kinds in _FILE.findall(prompt) if name not in {"output", "text"}}
    request = data.get("request", "")
    tasks: list[dict[str, Any]] = []
    last: Offer | None = None
    for step in _STEPS.split(request):
        offer = _alike(step, offers, set(last.gives.values() if last else " ".join(files.values()).split()))
        if offer is None:
            return {"tasks": [{"note": "unmapped", "text": f"Nothing here does this: {step}", "source": step}]}
        args, dep = _fed(offer, step, files, last, len(tasks))
        tasks.append({"task": offer.name, "id": len(tasks), "dep": dep, "args": args, "source": step})
        last = offer
    return {"tasks": tasks}


def _role(prompt: str) -> str:
    first = prompt.strip().split("\n", 1)[0].lower()
    return "plan" if "plan" in first else "choice" if "choose" in first else "answer"


def _offer(name: str, description: str, takes: str, gives: str) -> Offer:
    return Offer(name, f"{name} {name} {description}", _ports(takes), _ports(gives))


def _ports(listed: str) -> dict[str, str]:
    pairs = (port.partition(": ") for port in listed.split(", ") if ": " in port)
    return {name.strip("*"): modality for name, _, modality in pairs if not name.rstrip("*").endswith("?")}


def _alike(step: str, offers: Iterable[Offer], at_hand: set[str]) -> Offer | None:
    """The offer with the most word stems in common with the step; prefers one whose inputs are available."""
    wanted = set(_stems(step))
    shared = ((sum(stem in wanted for stem in _stems(offer.words)), offer) for offer in offers)
    scored = [(count + (not at_hand.isdisjoint(offer.takes.values())), offer) for count, offer in shared if count]
    return max(scored, key=lambda pair: pair[0], default=(0, None))[1]


def _stems(text: str) -> list[str]:
    return [word[:5] for word in re.findall(r"\w{4,}", text.lower())]


def _fed(
    offer: Offer, step: str, files: Mapping[str, str], last: Offer | None, number: int
) -> tuple[dict[str, str], list[int]]:
    args: dict[str, str] = {}
    dep = [-1]
    for port, modality in offer.takes.items():
        made = [name for name, given in last.gives.items() if given == modality] if last else []
        sent = [name for name, kinds in files.items() if modality in kinds]
        if made:
            args[port], dep = f"<{made[0]}>-{number - 1}", [number - 1]
        else:
            args[port] = f"<{sent[0]}>" if sent else step
    return args, dep

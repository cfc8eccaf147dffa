"""Answers that a small model might give to HuggingGPT's prompts, to run the LLM code paths without a model."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.fakes.llm.doctor_answers import doctor_answer
from tests.fakes.llm.scripted_replies import TextReply

_DATA = re.compile(r'<data name="([^"]+)" id="([^"]+)">\n(.*?)\n</data id="\2">', re.DOTALL)
_TASK = re.compile(r"^([\w-]+): (.*) \((.*)\) -> ([^;\n]*)", re.MULTILINE)
_FILE = re.compile(r"^<(\w+)>: ([^\"\n]*)", re.MULTILINE)
_STEPS = re.compile(r"[,;.]?\s+(?:and|then|danach|puis|luego)\s+(?:then\s+)?", re.IGNORECASE)

ANSWER_START = "These are the results."

RESULT_CHARACTERS = 600
"""Maximum characters of the results that an answer repeats."""


@dataclass(frozen=True)
class Offer:
    """A task as the prompt lists it: modalities by port."""

    name: str
    text: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


class PlausibleScript:
    """A script that answers all prompts of HuggingGPT, including the doctor's.

    Args:
        plan: Plan to answer; None guesses one from the text of the request.
        tokens_per_second: Speed of streaming.
    """

    def __init__(self, plan: Any = None, tokens_per_second: float | None = None) -> None:
        self._plan = plan
        self._tokens_per_second = tokens_per_second

    def __call__(self, body: Any) -> TextReply:
        return TextReply(doctor_answer(body) or self._text(body), tokens_per_second=self._tokens_per_second)

    def _text(self, body: Any) -> str:
        prompt = prompt_of(body)
        sections, purpose = data(prompt), role(body)
        if purpose == "plan":
            return json.dumps(self._plan or guess_plan(prompt, sections), ensure_ascii=False)
        if purpose == "choice":
            first = json.loads(sections["candidates"].splitlines()[0])
            return json.dumps({"id": first["id"], "reason": "it is listed first"})
        results = sections.get("results", "")[:RESULT_CHARACTERS]
        return "\n\n".join(part for part in (ANSWER_START, results, sections.get("undone", "")) if part)


def prompt_of(body: Any) -> str:
    """Text of all messages of a request."""
    return "\n".join(message["content"] for message in body["messages"])


def data(prompt: str) -> dict[str, str]:
    """Quoted sections of a prompt, by name."""
    return {name: text for name, _, text in _DATA.findall(prompt)}


def role(body: Any) -> str:
    """Purpose of a request: plan, choice or answer."""
    return body.get("response_format", {}).get("json_schema", {}).get("name") or _role(prompt_of(body))


def guess_plan(prompt: str, data: Mapping[str, str]) -> dict[str, Any]:
    """A plan with one task per step of the request; its input is a file or the output of the step before."""
    offers = [_offer(*found) for found in _TASK.findall(prompt)]
    files = {name: kinds for name, kinds in _FILE.findall(prompt) if name not in {"output", "text"}}
    request = data.get("request", "")
    tasks: list[dict[str, Any]] = []
    last: Offer | None = None
    for step in _STEPS.split(request):
        offer = _best_offer(step, offers, set(last.outputs.values() if last else " ".join(files.values()).split()))
        if offer is None:
            return {"tasks": [{"note": "unmapped", "text": f"No task does this: {step}", "source": step}]}
        args, dep = _arguments(offer, step, files, last, len(tasks))
        tasks.append({"task": offer.name, "id": len(tasks), "dep": dep, "args": args, "source": step})
        last = offer
    return {"tasks": tasks}


def _role(prompt: str) -> str:
    first = prompt.strip().split("\n", 1)[0].lower()
    return "plan" if "plan" in first else "choice" if "choose" in first else "answer"


def _offer(name: str, description: str, inputs: str, outputs: str) -> Offer:
    return Offer(name, f"{name} {name} {description}", _ports(inputs), _ports(outputs))


def _ports(listed: str) -> dict[str, str]:
    pairs = (port.partition(": ") for port in listed.split(", ") if ": " in port)
    return {name.strip("*"): modality for name, _, modality in pairs if not name.rstrip("*").endswith("?")}


def _best_offer(step: str, offers: Iterable[Offer], available: set[str]) -> Offer | None:
    """The offer with the most word stems in common with the step; prefers one whose inputs are available."""
    query = set(_stems(step))
    shared = ((sum(stem in query for stem in _stems(offer.text)), offer) for offer in offers)
    scored = [(count + (not available.isdisjoint(offer.inputs.values())), offer) for count, offer in shared if count]
    return max(scored, key=lambda pair: pair[0], default=(0, None))[1]


def _stems(text: str) -> list[str]:
    return [word[:5] for word in re.findall(r"\w{4,}", text.lower())]


def _arguments(
    offer: Offer, step: str, files: Mapping[str, str], last: Offer | None, number: int
) -> tuple[dict[str, str], list[int]]:
    args: dict[str, str] = {}
    dep = [-1]
    for port, modality in offer.inputs.items():
        produced = [name for name, kind in last.outputs.items() if kind == modality] if last else []
        uploaded = [name for name, kinds in files.items() if modality in kinds]
        if produced:
            args[port], dep = f"<{produced[0]}>-{number - 1}", [number - 1]
        else:
            args[port] = f"<{uploaded[0]}>" if uploaded else step
    return args, dep

"""Reads and writes the cards of an expert, models.json, in the layout of these files."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

Card = dict[str, Any]

COMMAND = "make verify-models"


@dataclass(frozen=True)
class Measurement:
    """What a run of a model with its real weights has shown."""

    date: str
    """Of the run, as 2026-11-26."""
    device: str
    """"cpu", or the product name of the GPU."""
    download_bytes: int
    """Of the model's safetensors on this machine, those of other repositories not included; 0 if unknown."""
    loaded_bytes: int
    """Memory of the loaded model, as the expert measured it."""
    commit: str = ""
    """Empty if the model was not read from the Hub."""
    license: str = ""
    """As on the Hub; empty if its page names none."""


def cards_path(package: str) -> Path:
    return Path(str(files(package) / "models.json"))


def read_cards(path: Path) -> list[Card]:
    cards: list[Card] = json.loads(path.read_text(encoding="utf-8"))
    return cards


def write_measurement(path: Path, task: str, model_id: str, found: Measurement) -> None:
    """Records a measurement on the card of a task and model, and commit and licence on all cards of the model."""
    cards = read_cards(path)
    for card in cards:
        if card["id"] == model_id:
            _update(card, found, is_measured=card["task"] == task)
    write_cards(path, cards)


def write_cards(path: Path, cards: list[Card]) -> None:
    """Writes one field a line, as the files are written by hand."""
    content = ",\n".join(f"  {{\n{_fields(card)}\n  }}" for card in cards)
    path.write_text(f"[\n{content}\n]\n", encoding="utf-8")


def _update(card: Card, found: Measurement, *, is_measured: bool) -> None:
    facts = {"revision": found.commit, "license": found.license}
    known = {name: value for name, value in facts.items() if value}
    for name, value in known.items():
        if value.casefold() != str(card.get(name, "")).casefold():
            card[name] = value
    others = [entry for entry in card.get("verified", ()) if entry["what"] not in known]
    card["verified"] = others + [{"what": name, "how": COMMAND, "date": found.date} for name in known]
    if is_measured:
        names = ("date", "device", "download_bytes", "loaded_bytes")
        card["measured"] = {name: getattr(found, name) for name in names}


def _fields(card: Mapping[str, Any]) -> str:
    return ",\n".join(
        f"    {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in card.items()
    )

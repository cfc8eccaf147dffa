"""What is known of models at providers: from the Hub, else as last seen there, else as shipped."""

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import structlog

log = structlog.get_logger(__name__)

_SECONDS_PER_HOUR = 3600


@dataclass(frozen=True)
class Fact:
    """One model for one task at one provider."""

    id: str
    task: str
    """Ours."""
    via: str
    """What the provider runs it as: the task, or conversational."""
    provider: str = ""
    """Empty: not known; the Hub is asked before the first call."""
    provider_id: str = ""
    """The provider's own name of the model."""
    downloads: int = 0
    likes: int = 0
    license: str = ""
    languages: tuple[str, ...] = ()


def shipped() -> list[Fact]:
    """A few well-known models of each task."""
    facts: list[Fact] = _read((files(__package__) / "snapshot.json").read_text(encoding="utf-8"))["facts"]
    return facts


def cached(file: Path, key: str, *, hours: float) -> list[Fact] | None:
    """The lists kept in a file, if they were made for the same question and are young enough."""
    try:
        kept = _read(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        log.warning("cached cards cannot be read", file=str(file), error=type(error).__name__)
        return None
    young = 0 <= time.time() - kept["time"] <= hours * _SECONDS_PER_HOUR
    facts: list[Fact] = kept["facts"]
    return facts if kept["key"] == key and young else None


def keep(file: Path, key: str, facts: Iterable[Fact]) -> None:
    """Keeps the lists, as a whole or not at all; that they cannot be kept is no harm."""
    text = json.dumps({"key": key, "time": time.time(), "facts": [asdict(fact) for fact in facts]}, indent=1)
    beside = file.with_suffix(".new")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(text, encoding="utf-8")
        beside.replace(file)
    except OSError as error:
        log.warning("cards are not cached", file=str(file), error=error.strerror)


def _read(text: str) -> dict[str, Any]:
    kept: Mapping[str, Any] = json.loads(text)
    facts = [Fact(**{**one, "languages": tuple(one.get("languages", ()))}) for one in kept["facts"]]
    return {"key": kept.get("key", ""), "time": kept.get("time", 0.0), "facts": facts}

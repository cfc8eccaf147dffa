"""Models at inference providers: cached from the Hub, or as bundled with this package."""

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
class ListedModel:
    """One model for one task at one provider."""

    id: str
    task: str
    """Standard task that it is offered for."""
    via: str
    """Task that the provider runs it as: the same, or conversational."""
    provider: str = ""
    """Empty if unknown: then it is looked up on the Hub before the first call."""
    provider_id: str = ""
    """Name of the model at the provider."""
    downloads: int = 0
    likes: int = 0
    license: str = ""
    languages: tuple[str, ...] = ()


def read_bundled_models() -> list[ListedModel]:
    """Returns a few well-known models of each task."""
    models: list[ListedModel] = _read((files(__package__) / "snapshot.json").read_text(encoding="utf-8"))["facts"]
    return models


def read_cache(file: Path, key: str, *, hours: float) -> list[ListedModel] | None:
    """Returns the cached models, if the file has the same key and is not too old."""
    try:
        stored = _read(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        log.warning("cannot read cached cards", file=str(file), error=type(error).__name__)
        return None
    is_fresh = 0 <= time.time() - stored["time"] <= hours * _SECONDS_PER_HOUR
    models: list[ListedModel] = stored["facts"]
    return models if stored["key"] == key and is_fresh else None


def write_cache(file: Path, key: str, models: Iterable[ListedModel]) -> None:
    """Writes the models to a file atomically; an error is only logged."""
    text = json.dumps({"key": key, "time": time.time(), "facts": [asdict(model) for model in models]}, indent=1)
    temporary = file.with_suffix(".new")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(file)
    except OSError as error:
        log.warning("cannot cache cards", file=str(file), error=error.strerror)


def _read(text: str) -> dict[str, Any]:
    stored: Mapping[str, Any] = json.loads(text)
    models = [ListedModel(**{**fact, "languages": tuple(fact.get("languages", ()))}) for fact in stored["facts"]]
    return {"key": stored.get("key", ""), "time": stored.get("time", 0.0), "facts": models}

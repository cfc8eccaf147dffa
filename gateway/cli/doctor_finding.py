"""Findings of the checks of doctor and check-expert."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    WRONG = "wrong"
    NOT_TRIED = "not_tried"
    """The check was not run."""


@dataclass(frozen=True)
class Finding:
    """Result of one check."""

    check: str
    level: Level
    found: str
    remedy: str = ""

"""What a check of the doctor finds."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    WRONG = "wrong"
    NOT_TRIED = "not_tried"
    """Nothing was found out: this counts neither as ok nor as wrong."""


@dataclass(frozen=True)
class Finding:
    """What one check found."""

    check: str
    level: Level
    found: str
    remedy: str = ""

"""Findings of checks."""

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


def ok(check: str, found: str) -> Finding:
    return Finding(check, Level.OK, found)


def warning(check: str, found: str, remedy: str = "") -> Finding:
    return Finding(check, Level.WARNING, found, remedy)


def wrong(check: str, found: str, remedy: str = "") -> Finding:
    return Finding(check, Level.WRONG, found, remedy)


def not_tried(check: str, found: str, remedy: str = "") -> Finding:
    return Finding(check, Level.NOT_TRIED, found, remedy)

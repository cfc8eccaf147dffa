"""Constructors of findings, one per level."""

from gateway.cli.doctor_finding import Finding, Level


def ok(check: str, found: str) -> Finding:
    return Finding(check, Level.OK, found)


def warning(check: str, found: str, remedy: str = "") -> Finding:
    return Finding(check, Level.WARNING, found, remedy)


def wrong(check: str, found: str, remedy: str = "") -> Finding:
    return Finding(check, Level.WRONG, found, remedy)


def not_tried(check: str, found: str, remedy: str = "") -> Finding:
    return Finding(check, Level.NOT_TRIED, found, remedy)

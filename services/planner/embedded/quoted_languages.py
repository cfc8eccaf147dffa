"""Languages named next to several quoted texts."""

import re
from collections.abc import Sequence

from services.planner.embedded.clauses import Clause
from services.planner.embedded.languages import NAME, TAGS
from services.planner.embedded.parameters import TARGET

_QUOTED, _NAMED = "q", "n"
_EACH_BEFORE, _EACH_AFTER = re.compile(r"(?:q+n)+"), re.compile(r"(?:nq+)+")


def spoken(clause: Clause) -> Sequence[str] | None:
    """The language of each quoted text; nothing if none or one common to all is named; None if that is unclear."""
    return _paired(clause, [(found.start(), found.group()) for found in NAME.finditer(clause.masked)])


def targets(clause: Clause) -> Sequence[str] | None:
    """The same for the language each is to be translated into."""
    hits = TARGET.finditer(clause.masked)
    return _paired(clause, [(hit.start(), next(name for name in hit.groups() if name)) for hit in hits])


def _paired(clause: Clause, named: Sequence[tuple[int, str]]) -> Sequence[str] | None:
    quoted = [(payload.start - clause.start, "") for payload in clause.payloads]
    ordered = sorted([*quoted, *named])
    shape = "".join(_NAMED if name else _QUOTED for _, name in ordered)
    if len(quoted) < 2 or not named:  # noqa: PLR2004  # a single text needs no assignment
        return ()
    before, after = _EACH_BEFORE.fullmatch(shape), _EACH_AFTER.fullmatch(shape)
    if not (before or after):
        return None
    if len(named) == 1:
        return ()
    tags: list[str] = []
    current = ""
    for _, name in reversed(ordered) if before else ordered:
        if name:
            current = TAGS[name]
        else:
            tags.append(current)
    return tags[::-1] if before else tags

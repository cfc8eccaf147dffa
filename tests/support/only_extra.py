"""Hides the packages that an installation with one extra would not have, in a process that starts with it.

`python -m tests.support.only_extra EXTRA` reads a module from standard input and runs it without those packages.
"""

import sys
import tomllib
from collections.abc import Collection, Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

DISTRIBUTION = "hugginggpt"
_PROJECT = Path(__file__).parents[2] / "pyproject.toml"


class VisibleFinder:
    """A finder of modules that does not see some top-level packages."""

    def __init__(self, finder: Any, hidden: Collection[str]) -> None:
        self._finder, self._hidden = finder, hidden

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> Any:
        if name.partition(".")[0] in self._hidden:
            return None
        return self._finder.find_spec(name, path, target)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._finder, name)


def hide_other_packages(extra: str) -> None:
    """Hides all installed packages that neither the distribution with this extra nor the standard library needs."""
    needed = needed_distributions(extra)
    hidden = {
        package
        for package, owners in metadata.packages_distributions().items()
        if not {canonicalize_name(owner) for owner in owners} & needed
    }
    for package in hidden & {name.partition(".")[0] for name in sys.modules}:
        raise RuntimeError(f"{package} is imported already, so it cannot be hidden")
    sys.meta_path[:] = [VisibleFinder(finder, hidden) for finder in sys.meta_path]


def needed_distributions(extra: str) -> set[str]:
    """Returns the names of the distributions that are installed with an extra, directly or indirectly."""
    needed: set[str] = set()
    waiting = [(DISTRIBUTION, frozenset({extra}))]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        entry = waiting.pop()
        if entry not in seen:
            seen.add(entry)
            needed.add(entry[0])
            waiting += _requirements(*entry)
    return needed


def _requirements(name: str, extras: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    for requirement in map(Requirement, _declared(name, extras)):
        environments = [{"extra": extra} for extra in (*extras, "")]
        if not requirement.marker or any(requirement.marker.evaluate(environment) for environment in environments):
            yield canonicalize_name(requirement.name), frozenset(requirement.extras)


def _declared(name: str, extras: frozenset[str]) -> Collection[str]:
    """Returns the requirements of a distribution; those of this project are read from the checkout."""
    if name == DISTRIBUTION:
        project = tomllib.loads(_PROJECT.read_text("utf-8"))["project"]
        optional = (line for extra in extras for line in project["optional-dependencies"][extra])
        return [*project["dependencies"], *optional]
    try:
        return metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return []


if __name__ == "__main__":
    hide_other_packages(sys.argv[1])
    exec(compile(sys.stdin.read(), "<standard input>", "exec"), {"__name__": "__main__"})  # the test's own program

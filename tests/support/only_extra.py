"""Makes virtual environments with exactly the packages that an installation with one extra has.

Nothing is downloaded: packages are links to those of the environment that runs the tests.
"""

import tomllib
import venv
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path, PurePath

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

DISTRIBUTION = "hugginggpt"
_ROOT = Path(__file__).parents[2]
_BYTECODE = "__pycache__"


def create_environment(extra: str, folder: Path) -> Path:
    """Creates an environment for the checkout with one extra, and returns its interpreter.

    The interpreter finds the checkout in the folder that it is started in, or on PYTHONPATH.
    """
    builder = venv.EnvBuilder(symlinks=True, with_pip=False)
    builder.create(folder)
    context = builder.ensure_directories(folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    for name in sorted(needed_distributions(extra) - {DISTRIBUTION}):
        _link_distribution(name, packages)
    return Path(context.env_exe)


def _link_distribution(name: str, packages: Path) -> None:
    """Links the files of a distribution; one that is not installed, as its markers exclude this platform, has none."""
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return
    for file in _list_files(distribution):
        top = Path(file.parts[0])
        shared = len(_owners()[top.name]) > 1  # a namespace package: the others may be those of another extra
        part = file if shared else top
        link = packages / part
        link.parent.mkdir(parents=True, exist_ok=True)
        source = Path(str(distribution.locate_file(part)))
        if source.exists() and not link.exists():
            link.symlink_to(source)


@cache
def _owners() -> Mapping[str, set[str]]:
    """Returns the distributions that have files in each folder and module of site-packages."""
    owners = defaultdict[str, set[str]](set)
    for distribution in metadata.distributions():
        for file in _list_files(distribution):
            owners[file.parts[0]].add(distribution.name)
    return owners


def _list_files(distribution: metadata.Distribution) -> list[PurePath]:
    return [file for file in distribution.files or () if file.parts[0] not in ("..", _BYTECODE)]


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
        project = tomllib.loads((_ROOT / "pyproject.toml").read_text("utf-8"))["project"]
        optional = (line for extra in extras for line in project["optional-dependencies"][extra])
        return [*project["dependencies"], *optional]
    try:
        return metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return []

"""Errors of experts whose Python packages are not installed, with the command that installs them."""

import shlex
import sys
import tomllib
from importlib import metadata
from pathlib import Path

from services.common.errors import FailedPrecondition

_DISTRIBUTION = "hugginggpt"
_OWN = ("experts", "gateway", "protos", "services")
"""Top-level packages of this project: if one of their modules is absent, no installation helps."""

_ROOT = Path(__file__).parents[2]


class EngineNotInstalled(FailedPrecondition):
    """None of an expert's models has its engine installed."""


def is_missing_dependency(error: ModuleNotFoundError) -> bool:
    """Whether the absent module belongs to another project, so that installing that helps."""
    return bool(error.name) and _root_package(error.name or "") not in _OWN


def missing_package(error: ModuleNotFoundError) -> str:
    """Returns a message that names the missing package."""
    return f"the Python package {_root_package(error.name or '')} is not installed"


def install_command(expert: str, module: str = "") -> str:
    """Returns the shell command that installs an expert's packages into the Python that runs it.

    Args:
        expert: name of the expert; each expert of this project has an extra of the same name.
        module: absent module, for experts without an extra.
    """
    if expert not in _extras():
        return (
            f"install the package that provides {_root_package(module)}: {shlex.quote(sys.executable)} -m pip install …"
        )
    if (_ROOT / "pyproject.toml").is_file():  # a checkout, as README installs it
        target = shlex.quote(f"{_ROOT}[{expert}]")
        return f"{shlex.quote(sys.executable)} -m pip install --editable {target}"
    return f"{shlex.quote(sys.executable)} -m pip install '{_DISTRIBUTION}[{expert}]'"


def _extras() -> frozenset[str]:
    project = _ROOT / "pyproject.toml"
    if project.is_file():
        declared = tomllib.loads(project.read_text("utf-8"))["project"].get("optional-dependencies", {})
        return frozenset(declared)
    try:
        return frozenset(metadata.metadata(_DISTRIBUTION).get_all("Provides-Extra") or ())
    except metadata.PackageNotFoundError:
        return frozenset()


def _root_package(module: str) -> str:
    return module.partition(".")[0]

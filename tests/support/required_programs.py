"""Skips tests whose programs are not installed, and lists at the end what is missing and how to install it.

With CI=true a missing program is a failure, like every other skip: `make test-deps` installs all of them.
"""

import os
import shutil
from collections import defaultdict
from pathlib import Path

import pytest

_REASON = "not installed: "
_OFF_PATH = {"postgres": "/usr/lib/postgresql/*/bin/postgres"}
"""Folders in which Debian installs versioned programs that are not on the PATH."""

ROOT = Path(__file__).parents[2]
NODE_MODULES = ROOT / "gateway" / "web" / "node_modules"
GENERATOR = ROOT / ".venv" / "openapi-python-client" / "bin" / "openapi-python-client"
"""In an environment of its own, because it needs an older typer."""

_IN_NODE_MODULES = {"eslint": ".bin/eslint", "tsc": ".bin/tsc", "axe-core": "axe-core/axe.min.js"}
"""Programs that npm installs from the lock file of the web page."""


def find_program(name: str) -> Path | None:
    """Path of a program; the newest version if Debian has installed several."""
    if name in _IN_NODE_MODULES:
        path = NODE_MODULES / _IN_NODE_MODULES[name]
        return path if path.exists() else None
    if name == GENERATOR.name:
        return GENERATOR if GENERATOR.exists() else None
    versions = Path("/").glob(_OFF_PATH[name].removeprefix("/")) if name in _OFF_PATH else ()
    newest = max(versions, key=lambda path: int(path.parts[-3]), default=None)
    on_path = shutil.which(name)
    return newest or (Path(on_path) if on_path else None)


def require(*programs: str) -> None:
    """Skips the running test, or fails it in CI, unless all programs are installed."""
    missing = [program for program in programs if not find_program(program)]
    if not missing:
        return
    reason = f"{_REASON}{', '.join(missing)}"
    if _in_ci():
        pytest.fail(f"{reason}; run `make test-deps`", pytrace=False)
    pytest.skip(reason)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(*programs): the test runs programs that Python does not bring")


def pytest_runtest_setup(item: pytest.Item) -> None:
    require(*(program for marker in item.iter_markers("needs") for program in marker.args))


def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if _in_ci() and reporter and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    missing: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for report in terminalreporter.stats.get("skipped", []):
        _, _, reason = report.longrepr
        if _REASON in reason:
            missing[reason.split(_REASON, 1)[1]][report.nodeid.partition("::")[0]] += 1
    if not missing:
        return
    terminalreporter.section("tests skipped because programs are missing; `make test-deps` installs all of them")
    for programs, files in sorted(missing.items()):
        terminalreporter.write_line(f"{programs}: {sum(files.values())} tests")
        for file, count in sorted(files.items()):
            terminalreporter.write_line(f"    {file} ({count})")


def _in_ci() -> bool:
    return os.environ.get("CI") == "true"

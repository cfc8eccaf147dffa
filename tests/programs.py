"""Tests that need a program beyond Python: run where it is there, listed as not run where it is not.

With CI=true a missing program is a failure, since `make test-deps` installs them all, and so is any other skipped test.
"""

import os
import shutil

import pytest

_missing = pytest.StashKey[dict[str, list[str]]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_missing] = {}
    config.addinivalue_line("markers", "needs(*programs): the test runs programs that Python does not bring")


def pytest_runtest_setup(item: pytest.Item) -> None:
    wanted = [program for marker in item.iter_markers("needs") for program in marker.args]
    absent = [program for program in wanted if shutil.which(program) is None]
    if not absent:
        return
    if _in_ci():
        pytest.fail(f"{', '.join(absent)} is not installed: run `make test-deps` first", pytrace=False)
    for program in absent:
        item.config.stash[_missing].setdefault(program, []).append(item.nodeid)
    pytest.skip(f"needs {', '.join(absent)}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if _in_ci() and reporter and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _in_ci() -> bool:
    return os.environ.get("CI") == "true"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for program, tests in sorted(config.stash[_missing].items()):
        terminalreporter.section(f"not run, for want of {program} (make test-deps installs it)")
        for test in tests:
            terminalreporter.write_line(test)

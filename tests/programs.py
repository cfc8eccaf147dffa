"""Tests that need a program beyond Python: run where it is there, listed as not run where it is not.

With CI=true a missing program is a failure: `make test-deps` installs them all.
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
    if os.environ.get("CI") == "true":
        pytest.fail(f"{', '.join(absent)} is not installed: run `make test-deps` first", pytrace=False)
    for program in absent:
        item.config.stash[_missing].setdefault(program, []).append(item.nodeid)
    pytest.skip(f"needs {', '.join(absent)}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for program, tests in sorted(config.stash[_missing].items()):
        terminalreporter.section(f"not run, for want of {program} (make test-deps installs it)")
        for test in tests:
            terminalreporter.write_line(test)

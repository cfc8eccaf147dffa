"""The web page's modules pass their checks: lint rules, types, and unit tests in node."""

import subprocess

import pytest

from tests.support.required_programs import NODE_MODULES


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("lint", marks=pytest.mark.needs("npm", "eslint")),
        pytest.param("types", marks=pytest.mark.needs("npm", "tsc")),
        pytest.param("test", marks=pytest.mark.needs("npm")),
    ],
)
def test_web_modules_pass(script: str) -> None:
    command = ["npm", "--silent", "run", script]
    done = subprocess.run(command, cwd=NODE_MODULES.parent, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

"""Distributes tests over worker processes: one group per module, slow groups first."""

import os
import re
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

_ONE_WORKER = ("tests/system/test_containers", "tests/system/test_page")
"""Modules that run on one worker, one after the other: they share images, containers and a browser, and a container
network that is created meanwhile makes Chromium abort its requests (net::ERR_NETWORK_CHANGED)."""

_SLOW_MODULE = re.compile(r"^pytestmark = \[?\s*(pytest\.mark\.slow|\*?CONTAINERS)", re.MULTILINE)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes long by nature; `make test-all` runs it and `make test` does not")


def pytest_xdist_auto_num_workers() -> int:
    """One worker more than cores, since some tests only wait."""
    return len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1) + 1


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves out modules that are slow as a whole without importing them: many import torch, which takes seconds."""
    is_module = collection_path.suffix == ".py" and collection_path.name.startswith("test_")
    if not is_module or config.option.markexpr != "not slow":
        return None
    return bool(_SLOW_MODULE.search(collection_path.read_text(encoding="utf-8"))) or None


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    return ModuleScheduling(config, log)


class ModuleScheduling(LoadScopeScheduling):  # type: ignore[misc]  # has no type annotations
    """Keeps the tests of a module on one worker, where its servers start once.

    pytest-xdist 3.8 has this as `--dist loadfile`, which cannot join modules; its `loadgroup` has no effect with
    pytest 9.2, which stores node ids elsewhere.
    """

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        return "one worker" if module.startswith(_ONE_WORKER) else module


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Moves the slowest modules to the front."""
    items.sort(key=_urgency)


def _urgency(item: pytest.Item) -> int:
    """Position in the queue: containers, then slow tests, then those with local stacks, then the rest."""
    if item.get_closest_marker("containers"):
        return 0
    if item.get_closest_marker("slow"):
        return 1
    return 2 if "system" in item.path.parts else 3

"""Commands on the pages of services and experts, at a local stack."""

import json
import re
from pathlib import Path

import pytest

from tests.support.pages import code_blocks, read_section
from tests.system.conftest import ROOT, LocalStack, start_local_stack
from tests.system.reader import Reader

pytestmark = [pytest.mark.slow, pytest.mark.needs("bash")]


def test_models_are_compared_and_scores_saved(local_stack: LocalStack, tmp_path: Path) -> None:
    section = read_section(ROOT / "services" / "selector" / "README.md", "Compare models, and write routing rules")
    (commands,) = code_blocks(section, "sh")
    Reader(tmp_path, local_stack).type(commands)
    assert "opencv/people" in (tmp_path / "scores.yaml").read_text(encoding="utf-8")


def test_priced_run_reports_its_cost(tmp_path: Path) -> None:
    section = read_section(ROOT / "services" / "orchestrator" / "README.md", "Cost")
    (commands,) = code_blocks(section, "sh")
    (documented,) = code_blocks(section, "json")
    setting, ask = commands.splitlines()
    prices = re.search(r"ORCHESTRATOR_PRICES='(.*)'", setting)
    assert prices
    with start_local_stack(tmp_path / "home", ORCHESTRATOR_PRICES=prices[1]) as stack:
        folder = tmp_path / "folder"
        folder.mkdir()
        run = json.loads(Reader(folder, stack).type(f"{ask} 2> progress"))
    assert run["usage"].keys() == json.loads(f"{{{documented}}}")["usage"].keys()
    assert run["usage"]["cost"] > 0


def test_page_of_lite_lists_its_models(local_stack: LocalStack, tmp_path: Path) -> None:
    (commands,) = code_blocks((ROOT / "experts" / "lite" / "README.md").read_text(encoding="utf-8"), "sh")
    models, _serve_alone = commands.splitlines()
    assert "rapidocr" in Reader(tmp_path, local_stack).type(models)

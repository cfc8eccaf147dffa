"""The commands of README.md, in the order in which a reader types them, at a running local stack."""

import re
from pathlib import Path

import pytest

from services.local.ports import Ports
from tests.readme import README
from tests.support.bulk import read_table
from tests.support.pages import code_blocks, read_section
from tests.system.conftest import LocalStack, eventually
from tests.system.reader import Reader
from tests.system.test_custom_expert import write_files

pytestmark = [pytest.mark.slow, pytest.mark.needs("bash"), pytest.mark.needs("curl")]

SECTIONS = ("Start", "Call it", "Store a pipeline and run it over files")
NOT_RUN = re.compile(r"git clone |make |export PATH=|pip install ")
"""Installation and start, which `make demo` and the local stack do here."""


def commands(section: str) -> list[str]:
    """Lines of the shell samples of a section, without those that install and start."""
    blocks = code_blocks(read_section(README, section), "sh")
    return [line for block in blocks for line in block.splitlines() if not NOT_RUN.match(line)]


@pytest.mark.timeout(600)  # reads twenty images, on a machine that may be busy
def test_commands_succeed_in_order(local_stack: LocalStack, tmp_path: Path) -> None:
    reader = Reader(tmp_path, local_stack)
    for section in SECTIONS:
        for line in commands(section):
            reader.type(line, status=1 if "exit status 1" in line else 0)
    assert (tmp_path / "batch" / "results.csv").is_file()
    assert len(read_table(tmp_path / "spoken")) == 20
    assert "\nformat: hugginggpt/pipeline/1\n" in (tmp_path / "read-aloud.yaml").read_text(encoding="utf-8")


def test_own_expert_is_served_checked_and_added(local_stack: LocalStack, tmp_path: Path) -> None:
    write_files(read_section(README, "Add an expert"), tmp_path / "shout")
    checkout = tmp_path / "hugginggpt"
    checkout.mkdir()
    reader = Reader(checkout, local_stack)
    serve, check, add = commands("Add an expert")
    with Ports() as ports:
        address = ports.reserve()
        serve, check, add = (line.replace("127.0.0.1:50061", address) for line in (serve, check, add))
        with reader.background(serve.removesuffix(" &")):
            eventually(lambda: reader.succeeds(check))
            assert "added shout" in reader.type(add)
            eventually(lambda: "text2text-generation" in reader.type("hugginggpt tasks"))
            reader.type("hugginggpt experts forget shout")

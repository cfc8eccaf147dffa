"""The examples in the README of the expert served are valid configuration files."""

import re
from pathlib import Path

import pytest

from experts.served.config import read_config
from tests.readme import ROOT

EXAMPLES = re.findall(r"```yaml\n(.*?)```", (ROOT / "experts/served/README.md").read_text("utf-8"), re.DOTALL)


@pytest.mark.parametrize(("text", "kind"), list(zip(EXAMPLES, ("openai", "oip"), strict=True)))
def test_example_of_each_kind_of_server_is_valid(text: str, kind: str, tmp_path: Path) -> None:
    file = tmp_path / "served.yaml"
    file.write_text(text)
    assert {server.kind for server in read_config(file).servers} == {kind}

"""The example of EXPERT_SERVED in README.md is a valid configuration file."""

from pathlib import Path

from experts.served.config import Config, read_config
from tests.readme import README


def example(tmp_path: Path) -> Config:
    section = README.read_text("utf-8").partition("`EXPERT_SERVED` is the path")[2]
    text = section.partition("```yaml\n")[2].partition("```")[0]
    file = tmp_path / "served.yaml"
    file.write_text(text)
    return read_config(file)


def test_readme_shows_a_valid_file_of_servers(tmp_path: Path) -> None:
    assert [server.kind for server in example(tmp_path).servers] == ["openai", "oip"]

"""What the command line says when the end of a batch does not come."""

from pathlib import Path

import pytest

from gateway.cli.batch import finish
from gateway.cli.batch.live_view import Silent
from gateway.cli.batch.output_folder import Folder
from gateway.cli.errors import Problem
from gateway.client import HuggingGPT


def test_a_batch_whose_gateway_is_gone_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("gateway.client.pipelines.streams.STREAM_TRIES", 1)
    folder = Folder(tmp_path)
    folder.claim("batch_1")
    with HuggingGPT("http://127.0.0.1:9") as house, pytest.raises(Problem) as told:
        finish.finish(house, "batch_1", folder, Silent())
    going_on = f"hugginggpt up, then hugginggpt resume batch_1 --out {tmp_path}"
    assert told.value.message == "no gateway answers at http://127.0.0.1:9"
    assert told.value.remedy == f"nothing goes on until a gateway is there again: {going_on}"

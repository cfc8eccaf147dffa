"""Errors while the command line follows a batch."""

from pathlib import Path

import pytest

from gateway.cli.batch import follow
from gateway.cli.batch.live_view import NullView
from gateway.cli.batch.output import Folder
from gateway.cli.errors import Problem
from gateway.client import HuggingGPT


def test_unreachable_gateway_names_the_resume_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("gateway.client.streams.STREAM_TRIES", 1)
    folder = Folder(tmp_path)
    folder.claim("batch_1")
    with HuggingGPT("http://127.0.0.1:9") as client, pytest.raises(Problem) as raised:
        follow.finish(client, "batch_1", folder, NullView())
    resume_command = f"hugginggpt resume batch_1 --out {tmp_path}"
    assert raised.value.message == "cannot connect to a gateway at http://127.0.0.1:9"
    assert raised.value.remedy == f"start the gateway with hugginggpt up, then: {resume_command}"

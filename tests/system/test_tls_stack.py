"""A house with certificates stands, its own processes by one authority and its doors by another."""

import os
from pathlib import Path

import pytest

from services.common.tls import Certificate
from tests.support.certificates import Authority
from tests.system.conftest import start_local_stack

pytestmark = pytest.mark.slow


def _of(certificate: Certificate, prefix: str, key: str) -> dict[str, str]:
    return {f"{prefix}_CERTIFICATE": str(certificate.chain), key: str(certificate.key)}


def test_services_answer_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, inside = Authority(tmp_path / "world"), Authority(tmp_path / "inside")
    settings = {
        **_of(world.certificate("gateway", "127.0.0.1"), "GATEWAY", "GATEWAY_CERTIFICATE_KEY"),
        **_of(inside.identity("everyone").certificate, "TLS", "TLS_KEY"),
        "TLS_AUTHORITY": str(inside.file),
    }
    with start_local_stack(tmp_path / "home", **settings) as local_stack:
        assert local_stack.url.startswith("https://")
        unsure = local_stack.run_cli("tasks")
        assert "no TLS connection" in unsure.err
        assert "SSL_CERT_FILE" in unsure.err
        monkeypatch.setitem(os.environ, "SSL_CERT_FILE", str(world.file))
        assert local_stack.ask("Read aloud: hello")["status"] == "completed"

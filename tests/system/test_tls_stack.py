"""A local stack with TLS: one authority for the services, another for the gateway's public ports."""

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
    public, internal = Authority(tmp_path / "public"), Authority(tmp_path / "internal")
    settings = {
        **_of(public.certificate("gateway", "127.0.0.1"), "GATEWAY", "GATEWAY_CERTIFICATE_KEY"),
        **_of(internal.identity("everyone").certificate, "TLS", "TLS_KEY"),
        "TLS_AUTHORITY": str(internal.file),
    }
    with start_local_stack(tmp_path / "home", **settings) as local_stack:
        assert local_stack.url.startswith("https://")
        untrusted = local_stack.run_cli("tasks")
        assert "no TLS connection" in untrusted.err
        assert "SSL_CERT_FILE" in untrusted.err
        monkeypatch.setitem(os.environ, "SSL_CERT_FILE", str(public.file))
        assert local_stack.ask("Read aloud: hello")["status"] == "completed"

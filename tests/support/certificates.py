"""Certificates for services, signed by a test authority."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme

from services.common.tls import Certificate, TlsIdentity

NAME = "hugginggpt"


class Authority:
    """Signs certificates and stores them as files."""

    def __init__(self, folder: Path) -> None:
        self._ca = trustme.CA()
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / "authority.pem"
        self._ca.cert_pem.write_to_path(self.file)

    def certificate(self, owner: str, *names: str, days: float = 1) -> Certificate:
        """A certificate for a service name; negative days make an expired one."""
        until = datetime.now(UTC) + timedelta(days=days)
        issued = self._ca.issue_cert(owner, *names, not_before=until - timedelta(days=2), not_after=until)
        chain, key = self._folder / f"{owner}.pem", self._folder / f"{owner}.key"
        issued.cert_chain_pems[0].write_to_path(chain)
        issued.private_key_pem.write_to_path(key)
        return Certificate(chain, key)

    def identity(self, owner: str, *, name: str = NAME, days: float = 1) -> TlsIdentity:
        return TlsIdentity(self.certificate(owner, name, days=days), self.file, NAME)

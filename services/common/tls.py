"""TLS certificates: mutual TLS between services, server certificates for public listeners, and their renewal.

All services of a deployment have certificates with one common DNS name, so that a server can be dialled by its address.
Renewed files are used for new connections without a restart.
"""

import os
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import grpc
import structlog

from services.common.errors import FailedPrecondition, ServiceError, Unavailable

log = structlog.get_logger(__name__)

T = TypeVar("T")

CHECK_SECONDS = 1.0
"""Shortest interval between two checks whether the files have changed."""

_HANDSHAKE_STEPS = 20


@dataclass(frozen=True)
class Certificate:
    """PEM files of a certificate chain and its private key; changed files apply to the next connection."""

    chain: Path
    key: Path

    def ssl_context(self) -> ssl.SSLContext:
        """A context for Python's own servers.

        Raises:
            FailedPrecondition: CERTIFICATE, the files are not a certificate and its key.
            Unavailable: they cannot be read.
        """
        context = latest = self._load()
        have_changed = _FileChanges(self.chain, self.key)

        def use_latest(connection: ssl.SSLObject, *_: object) -> None:
            nonlocal latest
            if have_changed():
                latest = self._load()
            connection.context = latest

        context.sni_callback = use_latest
        return context

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.load_into(context)
        return context

    def server_credentials(self, authority: Path | None = None) -> grpc.ServerCredentials:
        """Credentials for a gRPC server.

        Args:
            authority: PEM file of the authority whose certificates clients must present; None: clients need none.

        Raises:
            FailedPrecondition: CERTIFICATE, the files are not a certificate and its key.
            Unavailable: they cannot be read.
        """
        self.ssl_context()

        def configuration() -> grpc.ServerCertificateConfiguration:
            pairs = [(_read(self.key), _read(self.chain))]
            return grpc.ssl_server_certificate_configuration(pairs, _read(authority) if authority else None)

        have_changed = _FileChanges(self.chain, self.key, *([authority] if authority else []))

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            return configuration() if have_changed() else None

        return grpc.dynamic_ssl_server_credentials(
            configuration(),
            fetch,  # type: ignore[arg-type]  # None means unchanged, as gRPC documents
            require_client_authentication=authority is not None,
        )

    def load_into(self, context: ssl.SSLContext) -> None:
        """Makes a context present this certificate."""
        for file in (self.chain, self.key):
            _read(file)
        try:
            context.load_cert_chain(self.chain, self.key)
        except ssl.SSLError as error:
            raise _invalid(f"{self.chain} and {self.key} are not a certificate and its key: {error.reason}") from error


@dataclass(frozen=True)
class TlsIdentity:
    """Certificate that a process presents to other services, and the authority and name that it requires of theirs.

    Args:
        certificate: its own.
        authority: PEM file of the authority that signs the certificates of all services.
        name: DNS name that all these certificates contain.
    """

    certificate: Certificate
    authority: Path
    name: str

    def check(self) -> None:
        """Performs a TLS handshake with itself, in memory.

        Raises:
            FailedPrecondition: CERTIFICATE, with the reason why peers would reject it.
            Unavailable: a file cannot be read.
        """
        server, client = self.certificate.ssl_context(), ssl.create_default_context()
        for context in (server, client):
            self._trust_authority(context)
        self.certificate.load_into(client)
        server.verify_mode = ssl.CERT_REQUIRED
        try:
            _perform_handshake(server, client, self.name)
        except ssl.SSLCertVerificationError as error:
            raise _invalid(f"{self.certificate.chain} is not accepted: {error.verify_message}") from error
        except ssl.SSLError as error:
            raise _invalid(f"{self.certificate.chain} cannot be used: {error.reason}") from error

    def server_credentials(self) -> grpc.ServerCredentials:
        """Credentials of a server that requires certificates of the authority."""
        return self.certificate.server_credentials(self.authority)

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Credentials of a client, from the files as they are now."""
        chain, key = _read(self.certificate.chain), _read(self.certificate.key)
        return grpc.ssl_channel_credentials(_read(self.authority), key, chain)

    def _trust_authority(self, context: ssl.SSLContext) -> None:
        _read(self.authority)
        try:
            context.load_verify_locations(self.authority)
        except ssl.SSLError as error:
            raise _invalid(f"{self.authority} is not a certificate: {error.reason}") from error


class ReloadingTlsIdentity:
    """A process's identity whose channel credentials follow changes of its files."""

    def __init__(self, identity: TlsIdentity) -> None:
        self._identity = identity
        self._have_changed = _FileChanges(identity.certificate.chain, identity.certificate.key, identity.authority)
        self._credentials = identity.channel_credentials()
        self._checked_at, self._is_stale = time.monotonic(), False

    @property
    def name(self) -> str:
        """The DNS name in the certificates of all services."""
        return self._identity.name

    def server_credentials(self) -> grpc.ServerCredentials:
        """Credentials of a server; gRPC asks for changed files itself."""
        return self._identity.server_credentials()

    def credentials(self) -> grpc.ChannelCredentials:
        """Credentials for a new connection: the same object until other valid files are in place."""
        if time.monotonic() - self._checked_at >= CHECK_SECONDS:
            self._checked_at = time.monotonic()
            self._reload()
        return self._credentials

    def _reload(self) -> None:
        try:
            self._is_stale = self._have_changed() or self._is_stale
            if not self._is_stale:
                return
            self._identity.check()
            self._credentials, self._is_stale = self._identity.channel_credentials(), False
        except ServiceError as error:
            log.warning("renewed certificate rejected", error=error.message, remedy=error.remedy)
        else:
            log.info("certificate renewed", file=str(self._identity.certificate.chain))


class _Process:
    identity: ReloadingTlsIdentity | None = None


def set_process_identity(identity: TlsIdentity | None) -> None:
    """Sets the identity of this process; with None it uses no TLS between services.

    Raises:
        FailedPrecondition: CERTIFICATE, peers would reject it.
        Unavailable: its files cannot be read.
    """
    if identity:
        identity.check()
    _Process.identity = ReloadingTlsIdentity(identity) if identity else None


def process_identity() -> ReloadingTlsIdentity | None:
    """The identity of this process; None without TLS."""
    return _Process.identity


class _FileChanges:
    """Callable that returns whether files have changed since its last call."""

    def __init__(self, *files: Path) -> None:
        self._files = files
        self._seen = self._versions()

    def __call__(self) -> bool:
        before, self._seen = self._seen, self._versions()
        return self._seen != before

    def _versions(self) -> list[tuple[int, int]]:
        return [(state.st_mtime_ns, state.st_ino) for state in map(_stat, self._files)]


def _stat(file: Path) -> os.stat_result:
    return _translate_os_errors(file.stat)


def _read(file: Path) -> bytes:
    return _translate_os_errors(file.read_bytes)


def _translate_os_errors(read: Callable[[], T]) -> T:
    try:
        return read()
    except OSError as error:
        raise Unavailable(
            f"cannot read {error.filename}: {error.strerror}", remedy="mount the file, or correct the TLS settings"
        ) from error


def _perform_handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for step in range(_HANDSHAKE_STEPS):
        try:
            ends[step % 2].do_handshake()
        except ssl.SSLWantReadError:
            continue


def _invalid(problem: str) -> FailedPrecondition:
    remedy = "renew it, or correct the settings that name certificate, key and authority"
    return FailedPrecondition(problem, reason="CERTIFICATE", remedy=remedy)

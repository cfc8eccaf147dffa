"""Who a process is to the others: a certificate of the house, shown and asked for on every connection between services.

All certificates of the house carry one common name beside their own, so that a server may be dialled by its address.
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

LOOK_SECONDS = 1.0
"""From one look whether files have been renewed to the next."""

_MOST_STEPS = 10


@dataclass(frozen=True)
class Certificate:
    """A certificate with its key, as PEM files; read again for each connection once they have changed."""

    chain: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        """What Python's own servers take; renewed files are taken up at the next connection.

        Raises:
            FailedPrecondition: CERTIFICATE, they are not a certificate and its key.
            Unavailable: they cannot be read.
        """
        context = latest = self._context()
        renewed = _Changes(self.chain, self.key)

        def look(connection: ssl.SSLObject, *_: object) -> None:
            nonlocal latest
            if renewed():
                latest = self._context()
            connection.context = latest

        context.sni_callback = look
        return context

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.load_into(context)
        return context

    def credentials(self, authority: Path | None = None) -> grpc.ServerCredentials:
        """What gRPC's servers take; with an authority only clients with a certificate of its are let in.

        Raises:
            FailedPrecondition: CERTIFICATE, they are not a certificate and its key.
            Unavailable: they cannot be read.
        """
        self.context()

        def configuration() -> grpc.ServerCertificateConfiguration:
            pairs = [(_read(self.key), _read(self.chain))]
            return grpc.ssl_server_certificate_configuration(pairs, _read(authority) if authority else None)

        renewed = _Changes(self.chain, self.key, *([authority] if authority else []))

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            return configuration() if renewed() else None

        return grpc.dynamic_ssl_server_credentials(
            configuration(),
            fetch,  # type: ignore[arg-type]  # None means unchanged, as gRPC's own documentation has it
            require_client_authentication=authority is not None,
        )

    def load_into(self, context: ssl.SSLContext) -> None:
        """Has a context show this certificate."""
        for file in (self.chain, self.key):
            _read(file)
        try:
            context.load_cert_chain(self.chain, self.key)
        except ssl.SSLError as error:
            raise _wrong(f"{self.chain} and {self.key} are not a certificate and its key: {error.reason}") from error


@dataclass(frozen=True)
class Identity:
    """What a process shows to others, and whom it believes.

    Args:
        certificate: its own.
        authority: PEM file of the authority that has signed all certificates of the house.
        name: a DNS name that all of them carry.
    """

    certificate: Certificate
    authority: Path
    name: str

    def check(self) -> None:
        """Meets itself.

        Raises:
            FailedPrecondition: CERTIFICATE, naming what others would object to.
        """
        server, client = self.certificate.context(), ssl.create_default_context()
        for context in (server, client):
            self._trust(context)
        self.certificate.load_into(client)
        server.verify_mode = ssl.CERT_REQUIRED
        try:
            _shake_hands(server, client, self.name)
        except ssl.SSLCertVerificationError as error:
            raise _wrong(f"{self.certificate.chain} is not accepted: {error.verify_message}") from error
        except ssl.SSLError as error:
            raise _wrong(f"{self.certificate.chain} cannot be used: {error.reason}") from error

    def for_servers(self) -> grpc.ServerCredentials:
        return self.certificate.credentials(self.authority)

    def for_channels(self) -> grpc.ChannelCredentials:
        """As its files are now."""
        chain, key = _read(self.certificate.chain), _read(self.certificate.key)
        return grpc.ssl_channel_credentials(_read(self.authority), key, chain)

    def _trust(self, context: ssl.SSLContext) -> None:
        _read(self.authority)
        try:
            context.load_verify_locations(self.authority)
        except ssl.SSLError as error:
            raise _wrong(f"{self.authority} is not a certificate: {error.reason}") from error


class Shown:
    """The identity of a process, whose files are renewed while it runs; looked at once a second at most."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self._renewed = _Changes(identity.certificate.chain, identity.certificate.key, identity.authority)
        self._credentials = identity.for_channels()
        self._looked, self._stale = time.monotonic(), False

    def credentials(self) -> grpc.ChannelCredentials:
        """For a new connection: the same object as long as the files are the same, or are not whole yet."""
        if time.monotonic() - self._looked >= LOOK_SECONDS:
            self._looked = time.monotonic()
            self._look()
        return self._credentials

    def _look(self) -> None:
        try:
            self._stale = self._renewed() or self._stale
            if not self._stale:
                return
            self.identity.check()
            self._credentials, self._stale = self.identity.for_channels(), False
        except ServiceError as error:
            log.warning("a renewed certificate cannot be used", error=error.message, remedy=error.remedy)
        else:
            log.info("certificate renewed", file=str(self.identity.certificate.chain))


class _Own:
    shown: Shown | None = None


def assume(identity: Identity | None) -> None:
    """Makes an identity this process's; None leaves its connections unprotected.

    Raises:
        FailedPrecondition: CERTIFICATE, others would not accept it.
        Unavailable: its files cannot be read.
    """
    if identity:
        identity.check()
    _Own.shown = Shown(identity) if identity else None


def own() -> Shown | None:
    """What this process shows."""
    return _Own.shown


class _Changes:
    """Tells whether files have changed since it was last asked."""

    def __init__(self, *files: Path) -> None:
        self._files = files
        self._seen = self._now()

    def __call__(self) -> bool:
        before, self._seen = self._seen, self._now()
        return self._seen != before

    def _now(self) -> list[tuple[int, int]]:
        return [(state.st_mtime_ns, state.st_ino) for state in map(_stat, self._files)]


def _stat(file: Path) -> os.stat_result:
    return _reading(file.stat)


def _read(file: Path) -> bytes:
    return _reading(file.read_bytes)


def _reading(read: Callable[[], T]) -> T:
    try:
        return read()
    except OSError as error:
        raise _unreadable(error) from error


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for step in range(2 * _MOST_STEPS):
        try:
            ends[step % 2].do_handshake()
        except ssl.SSLWantReadError:
            continue


def _wrong(what: str) -> FailedPrecondition:
    remedy = "renew it, or correct the settings that name certificate, key and authority"
    return FailedPrecondition(what, reason="CERTIFICATE", remedy=remedy)


def _unreadable(error: OSError) -> Unavailable:
    return Unavailable(
        f"cannot read {error.filename}: {error.strerror}", remedy="mount the file, or correct the TLS settings"
    )

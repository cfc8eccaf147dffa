"""Sources of expert addresses: single addresses, DNS names, and folders of address files."""

import asyncio
import socket
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from services.common.errors import FailedPrecondition, InvalidRequest

SUFFIX = ".address"
"""Suffix of address files."""

_DNS = "dns:///"
_NO_ADDRESS = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))  # EAI_NODATA is not portable
"""Errors for a name without an address: in a cluster, all pods of the expert are scaled to zero."""
_PORTS = range(1, 65_536)
_REMEDY = "set SELECTOR_EXPERTS to host:port, dns:///name:port or a folder; separate several with commas"


@dataclass(frozen=True)
class SourceResult:
    """Result of reading a source."""

    addresses: frozenset[str] | None
    """None: the source cannot be read now, so its earlier addresses remain valid."""
    error: str = ""


class Source(Protocol):
    """A source of addresses."""

    @property
    def name(self) -> str:
        """The source as written in the settings."""

    @property
    def seconds(self) -> float:
        """Interval between reads."""

    async def read(self) -> SourceResult:
        """Reads the addresses that are listed now."""


@dataclass(frozen=True)
class StaticAddress:
    """One address."""

    name: str
    seconds = float("inf")

    async def read(self) -> SourceResult:
        return SourceResult(frozenset({self.name}))


@dataclass(frozen=True)
class DnsName:
    """All addresses of a DNS name, one per server."""

    name: str
    seconds: float = 2.0

    async def read(self) -> SourceResult:
        host, port = _split(self.name.removeprefix(_DNS))
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            if error.errno in _NO_ADDRESS:
                return SourceResult(frozenset(), "has no address now")
            return SourceResult(None, f"cannot be resolved: {error.strerror}")
        except UnicodeError:
            return SourceResult(None, "is not a valid DNS name")
        return SourceResult(frozenset(_joined(str(where[0]), port) for *_, where in found))


@dataclass(frozen=True)
class AddressFolder:
    """A folder of files with one address each; a folder that does not exist lists nothing."""

    path: Path
    seconds: float = 1.0

    @property
    def name(self) -> str:
        return str(self.path)

    async def read(self) -> SourceResult:
        return await asyncio.to_thread(self._read)

    async def remove(self, addresses: Collection[str]) -> None:
        """Deletes the files that list these addresses.

        Raises:
            FailedPrecondition: LISTED, a file cannot be deleted.
        """
        await asyncio.to_thread(self._remove, frozenset(addresses))

    async def addresses_of(self, expert: str) -> frozenset[str]:
        """Addresses in files named after an expert, or the address itself if `expert` is an address that a file lists.

        `hugginggpt experts add` names a file EXPERT@HOST-PORT.address; by hand one may be called EXPERT.address.
        """
        return await asyncio.to_thread(self._addresses_of, expert)

    def _remove(self, addresses: frozenset[str]) -> None:
        for file in self._files():
            if _first_line(file) not in addresses:
                continue
            try:
                file.unlink(missing_ok=True)
            except OSError as error:
                remedy = "delete the file on the selector's machine, then repeat the request"
                message = f"{_first_line(file)} is listed in {file}, which cannot be deleted: {error.strerror}"
                raise FailedPrecondition(message, reason="LISTED", remedy=remedy) from error

    def _addresses_of(self, expert: str) -> frozenset[str]:
        lines = {file: _first_line(file) for file in self._files()}
        named = [line for file, line in lines.items() if expert in (line, file.stem, file.stem.rpartition("@")[0])]
        return frozenset(filter(_is_address, named))

    def _files(self) -> list[Path]:
        try:
            return [file for file in self.path.iterdir() if file.suffix == SUFFIX]
        except OSError:
            return []

    def _read(self) -> SourceResult:
        try:
            lines = {file.name: _first_line(file) for file in self.path.iterdir() if file.suffix == SUFFIX}
        except FileNotFoundError:
            return SourceResult(frozenset())
        except OSError as error:
            return SourceResult(None, f"cannot be read: {error.strerror}")
        invalid = sorted(name for name, line in lines.items() if line and not _is_address(line))
        problem = f"has no host:port in the first line of {', '.join(invalid)}" if invalid else ""
        return SourceResult(frozenset(filter(_is_address, lines.values())), problem)


def parse(experts: str, *, folder_seconds: float = 1.0, dns_seconds: float = 2.0) -> Sequence[Source]:
    """Parses the sources of a setting, separated by commas.

    Raises:
        InvalidRequest: an entry is no address, DNS name or folder.
    """
    entries = dict.fromkeys(entry.strip() for entry in experts.split(",") if entry.strip())
    return [_source(entry, folder_seconds, dns_seconds) for entry in entries]


def _source(entry: str, folder_seconds: float, dns_seconds: float) -> Source:
    if entry.startswith(_DNS):
        _split(entry.removeprefix(_DNS))
        return DnsName(entry, dns_seconds)
    if entry.startswith("file://"):
        return AddressFolder(Path(unquote(urlsplit(entry).path)), folder_seconds)
    if "/" in entry or entry.startswith(("~", ".")):
        return AddressFolder(Path(entry).expanduser(), folder_seconds)
    _split(entry)
    return StaticAddress(entry)


def _first_line(file: Path) -> str:
    """Empty for a file that is being written or was just deleted; an error text for one that cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").partition("\n")[0].strip()
    except FileNotFoundError:
        return ""
    except OSError as error:
        return error.strerror or "unreadable"


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_address(line: str) -> bool:
    try:
        _split(line)
    except InvalidRequest:
        return False
    return True


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and len(port) <= len("65535") and int(port) in _PORTS and not set(host) & set("/ ,"):
        return host.strip("[]"), int(port)
    raise InvalidRequest(f"{address} is not host:port", remedy=_REMEDY)

"""Where the addresses of experts come from: a list, a name in the DNS, a folder of address files."""

import asyncio
import socket
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from services.common.errors import FailedPrecondition, InvalidRequest

SUFFIX = ".address"
"""Of the files that count in a folder."""

_DNS = "dns:///"
_NOBODY = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))  # not every system has the second
"""In a cluster: all that stand behind the name sleep."""
_PORTS = range(1, 65_536)
_REMEDY = "give SELECTOR_EXPERTS host:port, dns:///name:port or a folder, several by comma"


@dataclass(frozen=True)
class Listing:
    """What a source says."""

    addresses: frozenset[str] | None
    """None: it cannot be read now, so what it said before stands."""
    trouble: str = ""


class Source(Protocol):
    """Something that lists addresses."""

    @property
    def name(self) -> str:
        """As it stands in the settings."""

    @property
    def seconds(self) -> float:
        """How often to look again."""

    async def look(self) -> Listing:
        """What is listed now."""


@dataclass(frozen=True)
class Listed:
    """One address."""

    name: str
    seconds = float("inf")

    async def look(self) -> Listing:
        return Listing(frozenset({self.name}))


@dataclass(frozen=True)
class Resolved:
    """Every address of a name: one per server behind it."""

    name: str
    seconds: float = 2.0

    async def look(self) -> Listing:
        host, port = _split(self.name.removeprefix(_DNS))
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            if error.errno in _NOBODY:
                return Listing(frozenset(), "stands for no address now")
            return Listing(None, f"cannot be resolved: {error.strerror}")
        except UnicodeError:
            return Listing(None, "is no name that can be resolved")
        return Listing(frozenset(_joined(str(where[0]), port) for *_, where in found))


@dataclass(frozen=True)
class Folder:
    """Files of one line, an address each; a folder that is not there yet lists nothing."""

    path: Path
    seconds: float = 1.0

    @property
    def name(self) -> str:
        return str(self.path)

    async def look(self) -> Listing:
        return await asyncio.to_thread(self._read)

    async def remove(self, addresses: Collection[str]) -> None:
        """Deletes the files that list some addresses.

        Raises:
            FailedPrecondition: LISTED, a file cannot be deleted.
        """
        await asyncio.to_thread(self._remove, frozenset(addresses))

    async def named(self, expert: str) -> frozenset[str]:
        """The addresses in files whose name says that they are an expert's, or that address itself if a file lists it.

        `hugginggpt experts add` names a file EXPERT@HOST-PORT.address; by hand one may be called EXPERT.address.
        """
        return await asyncio.to_thread(self._named, expert)

    def _remove(self, addresses: frozenset[str]) -> None:
        for file in self._files():
            if _first_line(file) not in addresses:
                continue
            try:
                file.unlink(missing_ok=True)
            except OSError as error:
                remedy = "delete the file where the selector runs, then repeat the request"
                message = f"{_first_line(file)} is listed in {file}, which cannot be deleted: {error.strerror}"
                raise FailedPrecondition(message, reason="LISTED", remedy=remedy) from error

    def _named(self, expert: str) -> frozenset[str]:
        lines = {file: _first_line(file) for file in self._files()}
        named = [line for file, line in lines.items() if expert in (line, file.stem, file.stem.rpartition("@")[0])]
        return frozenset(filter(_is_address, named))

    def _files(self) -> list[Path]:
        try:
            return [file for file in self.path.iterdir() if file.suffix == SUFFIX]
        except OSError:
            return []

    def _read(self) -> Listing:
        try:
            lines = {file.name: _first_line(file) for file in self.path.iterdir() if file.suffix == SUFFIX}
        except FileNotFoundError:
            return Listing(frozenset())
        except OSError as error:
            return Listing(None, f"cannot be read: {error.strerror}")
        wrong = sorted(name for name, line in lines.items() if line and not _is_address(line))
        trouble = f"has no host:port in the first line of {', '.join(wrong)}" if wrong else ""
        return Listing(frozenset(filter(_is_address, lines.values())), trouble)


def parse(experts: str, *, folder_seconds: float = 1.0, dns_seconds: float = 2.0) -> Sequence[Source]:
    """The sources in a setting, by comma.

    Raises:
        InvalidRequest: one is neither an address, nor a name, nor a folder.
    """
    entries = dict.fromkeys(entry.strip() for entry in experts.split(",") if entry.strip())
    return [_source(entry, folder_seconds, dns_seconds) for entry in entries]


def _source(entry: str, folder_seconds: float, dns_seconds: float) -> Source:
    if entry.startswith(_DNS):
        _split(entry.removeprefix(_DNS))
        return Resolved(entry, dns_seconds)
    if entry.startswith("file://"):
        return Folder(Path(unquote(urlsplit(entry).path)), folder_seconds)
    if "/" in entry or entry.startswith(("~", ".")):
        return Folder(Path(entry).expanduser(), folder_seconds)
    _split(entry)
    return Listed(entry)


def _first_line(file: Path) -> str:
    """Empty if the file is about to be written, or gone while we looked; one that cannot be read holds no address."""
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
    raise InvalidRequest(f"{address} is no host:port", remedy=_REMEDY)

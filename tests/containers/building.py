"""Images: a base in place of one that a registry would have, and what is built on it; built once, then found again."""

import subprocess
import sys
from ast import literal_eval
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tests.containers.engine import LABEL
from tests.containers.podman import Podman

ROOT = Path(__file__).parents[2]

BASE = "localhost/hugginggpt-tests/base:bookworm-1"
"""Debian with Python 3.11, laid out as the official image is: `python` is there, and pip may install."""

BUILD_SECONDS = 800.0

_DEBIAN = (
    *("mmdebstrap", "--quiet", "--variant=minbase", "--include=python3,python3-venv,python3-pip,ca-certificates"),
    '--customize-hook=ln -s python3 "$1/usr/bin/python"',
    '--customize-hook=rm -f "$1"/usr/lib/python3*/EXTERNALLY-MANAGED',
    "bookworm",
)
_MIRROR = "http://deb.debian.org/debian"
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
"""Whom this machine believes: more than a fresh base may."""


@dataclass(frozen=True)
class Builder:
    """Builds from files of the repository, with what pip is told on this machine."""

    podman: Podman
    folder: Path

    def base(self) -> str:
        """The base's name; it is made if it is not there."""
        if not self._there(BASE):
            layer = str(self.folder / "base.tar")
            self.podman.told(*_DEBIAN, layer, _MIRROR, seconds=BUILD_SECONDS)
            self.podman("import", "--change", f"LABEL {LABEL}=", layer, BASE)
            Path(layer).unlink()
        return BASE

    def build(self, name: str, file: Path, *, target: str = "", **arguments: str) -> str:
        """Builds an image; what is cached is used.

        Args:
            name: of the image.
            file: a Dockerfile.
            target: the stage to stop at; "" is the last.
            arguments: of the build, beside the base.
        """
        given = {"BASE": self.base(), **arguments}
        self.podman.told(
            *("buildah", "bud", "--isolation", "chroot", "--layers", "--format", "docker", "--label", LABEL),
            *self._pip(),
            *(f"--build-arg={key}={value}" for key, value in given.items()),
            *((f"--target={target}",) if target else ()),
            *("--file", str(file), "--tag", name, str(ROOT)),
            seconds=BUILD_SECONDS,
        )
        return name

    def size(self, image: str) -> int:
        """Bytes of all its layers."""
        return int(self.podman("image", "inspect", "--format", "{{.Size}}", image))

    def _there(self, image: str) -> bool:
        listed = self.podman("images", "--quiet", "--filter", f"reference={image}")
        return bool(listed)

    def _pip(self) -> Iterator[str]:
        """Volumes by which a build's pip finds what this machine's pip does; nothing of it is in the image."""
        told = {"cert": str(_CERTIFICATES)} | pip_settings()
        conf = self.folder / "pip.conf"
        shown = told | {"cert": str(_CERTIFICATES)}
        conf.write_text("\n".join(["[global]", *(f"{name} = {value}" for name, value in shown.items())]))
        yield f"--volume={conf}:/etc/pip.conf:ro"
        yield f"--volume={told['cert']}:{_CERTIFICATES}:ro"
        for place in places(told):
            yield f"--volume={place}:{place}:ro"


def pip_settings() -> dict[str, str]:
    """What pip is told here for all its commands, by files and by the environment."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    pairs = (line.partition("=")[::2] for line in listed.stdout.splitlines())
    told = sorted((name, literal_eval(value)) for name, value in pairs if name.startswith(("global.", ":env:.")))
    files = {name.removeprefix("global."): value for name, value in told if name.startswith("global.")}
    return files | {name.removeprefix(":env:."): value for name, value in told if name.startswith(":env:.")}


def places(told: Mapping[str, str]) -> set[Path]:
    """Folders of this machine that pip's settings name; an index in a folder lies beside the files it lists."""
    words = [word for value in told.values() for word in value.split()]
    indices = {Path(urlsplit(word).path).parent for word in words if word.startswith("file:///")}
    paths = {Path(word) for word in words if word.startswith("/")}
    return {path for path in indices | paths if path.is_dir()}

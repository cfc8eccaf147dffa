"""Images: a base in place of one that a registry would have, and what is built on it; built once, then found again."""

import subprocess
import sys
from ast import literal_eval
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.containers.engine import LABEL
from tests.containers.podman import Podman

ROOT = Path(__file__).parents[2]

REPOSITORY = "localhost/hugginggpt-tests"
"""Of all images that tests build: those of `make images` have another, so nobody ships a test's for one of them."""

BASE = f"{REPOSITORY}/base:bookworm-1"
"""Debian with Python 3.11, laid out as the official image is: `python` is there, and pip may install."""

BUILD_SECONDS = 800.0

_DEBIAN = (
    *("mmdebstrap", "--quiet", "--variant=minbase", "--include=python3,python3-venv,python3-pip,ca-certificates"),
    '--customize-hook=ln -s python3 "$1/usr/bin/python"',
    '--customize-hook=rm -f "$1"/usr/lib/python3*/EXTERNALLY-MANAGED',
    "bookworm",
)
_APT_SOURCES = ("apt-get", "indextargets", "--format", "$(RELEASE) $(COMPONENT) $(REPO_URI)", "Created-By: Packages")
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
"""Whom this machine believes: more than a fresh base may."""
_EMPTY = ("/mnt", "/srv", "/media")
"""Folders that every Debian has: a volume leaves no trace there."""


@dataclass(frozen=True)
class Builder:
    """Builds from files of the repository, with what pip is told on this machine."""

    podman: Podman
    folder: Path

    def base(self) -> str:
        """The base's name; it is made if it is not there."""
        if not self._there(BASE):
            layer = str(self.folder / "base.tar")
            mirror = debian_mirror(self.podman.told(*_APT_SOURCES))
            self.podman.told(*_DEBIAN, layer, mirror, seconds=BUILD_SECONDS)
            self.podman("import", "--change", f"LABEL {LABEL}=", layer, BASE)
            Path(layer).unlink()
        return BASE

    def build(self, name: str, file: Path, *, target: str = "", **arguments: str) -> str:
        """Builds an image and gives its id: others may use the same name. What is cached is used.

        Args:
            name: of the image.
            file: a Dockerfile.
            target: the stage to stop at; "" is the last.
            arguments: of the build, beside the base.
        """
        given = {"BASE": self.base(), **arguments}
        said = self.podman.told(
            *("buildah", "bud", "--isolation", "chroot", "--layers", "--format", "docker", "--label", LABEL),
            *pip_options(pip_settings()),
            *(f"--build-arg={key}={value}" for key, value in given.items()),
            *((f"--target={target}",) if target else ()),
            *("--file", str(file), "--tag", name, str(ROOT)),
            seconds=BUILD_SECONDS,
        )
        return said.splitlines()[-1]

    def size(self, image: str) -> int:
        """Bytes of all its layers."""
        return int(self.podman("image", "inspect", "--format", "{{.Size}}", image))

    def _there(self, image: str) -> bool:
        listed = self.podman("images", "--quiet", "--filter", f"reference={image}")
        return bool(listed)


def of_tests(image: str) -> str:
    """What an image of ours, named as `make images` does, is called where tests have built it."""
    return image.replace("hugginggpt/", f"{REPOSITORY}/", 1)


def debian_mirror(apt_sources: str) -> str:
    """Returns the address from which apt on this machine installs Debian 12.

    Args:
        apt_sources: lines of release, component and address, as `_APT_SOURCES` prints them.

    Raises:
        RuntimeError: apt has no such source.
    """
    sources = (line.split(maxsplit=2) for line in apt_sources.splitlines())
    found = next((uri for release, component, uri in sources if (release, component) == ("bookworm", "main")), None)
    if found is None:
        raise RuntimeError("apt on this machine has no source for bookworm main, from which the base image is built")
    return found


def pip_settings() -> dict[str, str]:
    """What pip is told here for all its commands, by files and by the environment."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    pairs = (line.partition("=")[::2] for line in listed.stdout.splitlines())
    told = sorted((name, literal_eval(value)) for name, value in pairs if name.startswith(("global.", ":env:.")))
    files = {name.removeprefix("global."): value for name, value in told if name.startswith("global.")}
    return files | {name.removeprefix(":env:."): value for name, value in told if name.startswith(":env:.")}


def pip_options(told: Mapping[str, str]) -> Iterator[str]:
    """Options by which a build's pip finds what this machine's pip does; nothing of it is in the image.

    Args:
        told: pip's settings here; of the places of packages, indices that are folders are left out.
    """
    yield f"--volume={told.get('cert', _CERTIFICATES)}:{_CERTIFICATES}:ro"
    yield f"--build-arg=PIP_CERT={_CERTIFICATES}"
    folders = [word for word in told.get("find-links", "").split() if Path(word).is_dir()]
    mounted = dict(zip(folders, _EMPTY, strict=False))
    yield from (f"--volume={outside}:{inside}:ro" for outside, inside in mounted.items())
    if mounted:
        yield f"--build-arg=PIP_FIND_LINKS={' '.join(mounted.values())}"
    for setting in ("index-url", "extra-index-url"):
        if elsewhere := [word for word in told.get(setting, "").split() if not word.startswith("file:")]:
            yield f"--build-arg=PIP_{setting.upper().replace('-', '_')}={' '.join(elsewhere)}"

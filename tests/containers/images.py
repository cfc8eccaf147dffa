"""Images for tests: a Debian base image and the project's images on it; layers are cached between sessions."""

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
"""Repository of all images that tests build; `make images` uses another, so no test image is shipped by mistake."""

BASE = f"{REPOSITORY}/base:bookworm-1"
"""Debian with Python 3.11, laid out like the official image: `python` exists, and pip may install."""

BUILD_SECONDS = 800.0

_DEBIAN = (
    *("mmdebstrap", "--quiet", "--variant=minbase", "--include=python3,python3-venv,python3-pip,ca-certificates"),
    '--customize-hook=ln -s python3 "$1/usr/bin/python"',
    '--customize-hook=rm -f "$1"/usr/lib/python3*/EXTERNALLY-MANAGED',
    "bookworm",
)
_APT_SOURCES = ("apt-get", "indextargets", "--format", "$(RELEASE) $(COMPONENT) $(REPO_URI)", "Created-By: Packages")
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
"""Certificate authorities that this machine trusts; a package mirror may need them."""
_EMPTY = ("/mnt", "/srv", "/media")
"""Folders that every Debian image contains, so mounting a volume there leaves no trace in the image."""


@dataclass(frozen=True)
class Builder:
    """Builds images from the repository's Dockerfiles, with the pip settings of this machine."""

    podman: Podman
    folder: Path

    def base(self) -> str:
        """Returns the name of the base image, and creates it if it does not exist."""
        if not self._exists(BASE):
            layer = str(self.folder / "base.tar")
            mirror = debian_mirror(self.podman.run(*_APT_SOURCES))
            self.podman.run(*_DEBIAN, layer, mirror, seconds=BUILD_SECONDS)
            self.podman("import", "--change", f"LABEL {LABEL}=", layer, BASE)
            Path(layer).unlink()
        return BASE

    def build(self, name: str, file: Path, *, target: str = "", **arguments: str) -> str:
        """Builds an image, with cached layers, and returns its id, which is unambiguous if the name is reused.

        Args:
            name: Name of the image.
            file: The Dockerfile.
            target: The stage to build; "" for the last.
            arguments: Build arguments in addition to BASE.
        """
        build_arguments = {"BASE": self.base(), **arguments}
        output = self.podman.run(
            *("buildah", "bud", "--isolation", "chroot", "--layers", "--format", "docker", "--label", LABEL),
            *pip_options(pip_settings()),
            *(f"--build-arg={key}={value}" for key, value in build_arguments.items()),
            *((f"--target={target}",) if target else ()),
            *("--file", str(file), "--tag", name, str(ROOT)),
            seconds=BUILD_SECONDS,
        )
        return output.splitlines()[-1]

    def size(self, image: str) -> int:
        """Size of all layers in bytes."""
        return int(self.podman("image", "inspect", "--format", "{{.Size}}", image))

    def _exists(self, image: str) -> bool:
        ids = self.podman("images", "--quiet", "--filter", f"reference={image}")
        return bool(ids)


def image_for_tests(image: str) -> str:
    """Converts an image name of `make images` to the name of the image that tests have built."""
    return image.replace("hugginggpt/", f"{REPOSITORY}/", 1)


def debian_mirror(apt_sources: str) -> str:
    """Returns the address from which apt on this machine installs Debian 12.

    Args:
        apt_sources: Lines of release, component and address, as `_APT_SOURCES` prints them.

    Raises:
        RuntimeError: apt has no such source.
    """
    sources = (line.split(maxsplit=2) for line in apt_sources.splitlines())
    found = next((uri for release, component, uri in sources if (release, component) == ("bookworm", "main")), None)
    if found is None:
        raise RuntimeError("apt on this machine has no source for bookworm main, from which the base image is built")
    return found


def pip_settings() -> dict[str, str]:
    """Global pip settings of this machine, from files and environment variables; the latter take precedence."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    pairs = (line.partition("=")[::2] for line in listed.stdout.splitlines())
    settings = sorted((name, literal_eval(value)) for name, value in pairs if name.startswith(("global.", ":env:.")))
    files = {name.removeprefix("global."): value for name, value in settings if name.startswith("global.")}
    return files | {name.removeprefix(":env:."): value for name, value in settings if name.startswith(":env:.")}


def pip_options(settings: Mapping[str, str]) -> Iterator[str]:
    """Build options with which pip uses this machine's package sources, without leaving them in the image.

    Args:
        settings: This machine's pip settings; indices with a file: URL are left out.
    """
    yield f"--volume={settings.get('cert', _CERTIFICATES)}:{_CERTIFICATES}:ro"
    yield f"--build-arg=PIP_CERT={_CERTIFICATES}"
    folders = [folder for folder in settings.get("find-links", "").split() if Path(folder).is_dir()]
    mounted = dict(zip(folders, _EMPTY, strict=False))
    yield from (f"--volume={outside}:{inside}:ro" for outside, inside in mounted.items())
    if mounted:
        yield f"--build-arg=PIP_FIND_LINKS={' '.join(mounted.values())}"
    for setting in ("index-url", "extra-index-url"):
        if remote := [url for url in settings.get(setting, "").split() if not url.startswith("file:")]:
            yield f"--build-arg=PIP_{setting.upper().replace('-', '_')}={' '.join(remote)}"

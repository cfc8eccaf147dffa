"""What the image of gateway and light services adds to its base."""

import shutil
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.rows import Row, gap
from tests.containers.images import BASE, ROOT, Builder, of_tests
from tests.containers.podman import Podman

NAME, MOST_MB = "image.core_mb", 150


async def rows() -> list[Row]:
    """Builds it; what is cached is used."""
    if not all(map(shutil.which, ("buildah", "podman"))):
        return [gap(NAME, "MB", MOST_MB, "there is no buildah, or no podman")]
    with TemporaryDirectory() as folder:
        builder, told = Builder(Podman.in_folder(Path(folder)), Path(folder)), version("hugginggpt")
        core = builder.build(of_tests(f"hugginggpt/core:{told}"), ROOT / "docker" / "core.Dockerfile", VERSION=told)
        added = builder.size(core) - builder.size(BASE)
    return [Row(NAME, round(added / 1e6, 1), "MB", MOST_MB, note="on disk, above Debian with Python")]

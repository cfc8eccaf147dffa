"""Size that the core image adds to its base image."""

import shutil
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.rows import Row, gap
from tests.containers.images import BASE, ROOT, Builder, image_for_tests
from tests.containers.podman import Podman

NAME, MOST_MB = "image.core_mb", 150


async def rows() -> list[Row]:
    """Builds the image, with cached layers if there are any."""
    if not all(map(shutil.which, ("buildah", "podman"))):
        return [gap(NAME, "MB", MOST_MB, "buildah or podman is not installed")]
    with TemporaryDirectory() as folder:
        builder, tag = Builder(Podman.in_folder(Path(folder)), Path(folder)), version("hugginggpt")
        core = builder.build(
            image_for_tests(f"hugginggpt/core:{tag}"), ROOT / "docker" / "core.Dockerfile", VERSION=tag
        )
        added = builder.size(core) - builder.size(BASE)
    return [Row(NAME, round(added / 1e6, 1), "MB", MOST_MB, note="on disk, above Debian with Python")]

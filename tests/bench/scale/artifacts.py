"""Time to upload a file to the gateway and to download it, from a kilobyte to a gigabyte."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.curves import Curve, Measured, Point
from tests.bench.rows import Row, median
from tests.bench.transfers import GatewayProcess, download, start_gateway, upload

REPEATS = {1_000: 5, 10_000: 5, 100_000: 5, 1_000_000: 5, 10_000_000: 3, 100_000_000: 3, 1_000_000_000: 1}
"""By size in bytes."""
LABELS: Mapping[float, str] = {1_000: "1kb", 1_000_000: "1mb", 1_000_000_000: "1gb"}
EXPONENT, GROWTH_MB = 1.1, 64


async def rows() -> list[Measured]:
    with TemporaryDirectory() as home:
        async with start_gateway(Path(home)) as gateway:
            await _transfer(gateway, min(REPEATS))  # the first requests of a process take longer
            points = [await _transfer(gateway, size) for size in REPEATS]
    up, down, grown = ([point[kind] for point in points] for kind in range(3))
    curve = Curve("scale.artifacts", "A file by its size", "bytes", "ms", {"upload": up, "download": down})
    highest = max(growth for _, growth in grown)
    most = Row("scale.artifacts_growth_mb", round(highest, 1), "MB", GROWTH_MB, note="of the gateway, at any size")
    speeds = [*_speeds("upload", up), *_speeds("download", down)]
    return [*speeds, *curve.exponents(EXPONENT), most, curve]


async def _transfer(gateway: GatewayProcess, size: int) -> tuple[Point, Point, Point]:
    """Milliseconds to upload and to download a file of this size, and the gateway's growth in megabytes."""
    uploads = [await upload(gateway, size) for _ in range(REPEATS[size])]
    downloads = [await download(gateway.port, f"/v1/artifacts/{one.sha256}", size) for one in uploads]
    up, down = median([one.seconds for one in uploads]), median(downloads)
    return (size, 1000 * up), (size, 1000 * down), (size, max(one.growth_mb for one in uploads))


def _speeds(direction: str, points: list[Point]) -> list[Row]:
    return [
        Row(f"scale.{direction}_{LABELS[size]}_mb_per_s", median([size / 1000 / ms]), "MB/s", note=f"in {ms:.3g} ms")
        for size, ms in points
        if size in LABELS
    ]

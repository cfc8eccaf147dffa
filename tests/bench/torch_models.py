"""Throughput of the text, vision and audio experts on the CPU, as a share of the best offline batch of their model."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.expert_models.comparison import Comparison, Load, contenders
from tests.bench.expert_models.workloads import WORKLOADS, Size, Workload
from tests.bench.processes import printed
from tests.bench.rows import Row, gap

SHARE = 0.95
LOADS: Mapping[Size, Mapping[str, Load]] = {
    "base": {
        "text": Load("cpu", count=192, callers=64, batches=(1, 8, 16, 32)),
        "vision": Load("cpu", count=48, callers=16, batches=(1, 4, 8)),
        "audio": Load("cpu", count=48, callers=16, batches=(1, 4, 8)),
    },
    "tiny": {
        "text": Load("cpu", count=4096, callers=64, batches=(1, 8, 32, 128)),
        "vision": Load("cpu", count=512, callers=64, batches=(1, 8, 32)),
        "audio": Load("cpu", count=1024, callers=64, batches=(1, 8, 32)),
    },
}
"""Loads by size and modality: a round takes 2 to 20 s. 64 calls are as many as an orchestrator makes of one expert."""


async def rows() -> list[Row]:
    return [row for size in LOADS for row in await size_rows(size, WORKLOADS)]


async def size_rows(size: Size, workloads: Sequence[Workload]) -> list[Row]:
    """The rows of models of one size."""
    if not find_spec("torch"):
        why = "torch is not installed: pip install 'hugginggpt[text,vision,audio]'"
        return [gap(_name(workload, size), "", _target(size), why, at_least=True) for workload in workloads]
    with TemporaryDirectory() as home:
        await printed("tests.bench.expert_models.files", home, size, hide_stderr=True)
        return [await _share(workload, size, Path(home)) for workload in workloads]


async def _share(workload: Workload, size: Size, models: Path) -> Row:
    async with contenders(workload, models, LOADS[size][workload.modality]) as both:
        compared = await both.compare()
    return Row(
        _name(workload, size),
        round(compared.share, 3),
        "",
        _target(size),
        at_least=True,
        note=f"{workload.about}, {size}: {describe(compared)}",
    )


def describe(compared: Comparison) -> str:
    """The conditions and rates of a comparison."""
    settings, load = compared.settings, compared.load
    preprocess = f"{settings.threads} threads preprocess" if settings.threads else "preprocessing between batches"
    return (
        f"of {compared.offline_rate:.3g} a second on {compared.cores} cores offline, the best of batches of "
        f"{', '.join(map(str, load.batches))}: {settings.batch}, {preprocess}; {load.callers} callers, "
        f"{compared.served_rate:.3g} calls/s on the same cores; median of {len(compared.served)} rounds of "
        f"{load.count} items; {compared.busy}"
    )


def _name(workload: Workload, size: Size) -> str:
    return f"host.{workload.modality}_{size}_share"


def _target(size: Size) -> float | None:
    """None for tiny models: their items take less time than a call, which an offline batch does not make."""
    return None if size == "tiny" else SHARE

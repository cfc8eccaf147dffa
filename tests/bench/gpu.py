"""GPU utilization by the text, vision and audio experts, and their throughput as a share of the best offline batch."""

import asyncio
import shutil
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.expert_models.comparison import Load, contenders
from tests.bench.expert_models.workloads import WORKLOADS, Workload
from tests.bench.processes import printed
from tests.bench.rows import Row, gap, quantile
from tests.bench.torch_models import describe

DEVICE = "cuda:0"
BATCHES = (1, 8, 32, 128, 256)
LOADS: Mapping[str, Load] = {
    "text": Load(DEVICE, count=8192, callers=512, batches=BATCHES),
    "vision": Load(DEVICE, count=2048, callers=256, batches=BATCHES),
    "audio": Load(DEVICE, count=2048, callers=256, batches=BATCHES),
}
POLL_MILLISECONDS = "100"


async def rows() -> list[Row]:
    if why := await _missing():
        return [row for workload in WORKLOADS for row in _figures(workload, why)]
    with TemporaryDirectory() as home:
        await printed("tests.bench.expert_models.files", home, "large", hide_stderr=True)
        return [row for workload in WORKLOADS for row in await _measure(workload, Path(home))]


async def _missing() -> str:
    """The missing prerequisite; empty if there is none."""
    if not shutil.which("nvidia-smi") or not await _smi("--query-gpu=name"):
        return "no GPU"
    lacking = [name for name in ("torch", "transformers") if not find_spec(name)]
    return f"no {lacking[0]}" if lacking else ""


async def _measure(workload: Workload, models: Path) -> list[Row]:
    async with contenders(workload, models, LOADS[workload.modality]) as both:
        compared = await both.compare()
        async with _utilization() as busy:
            await both.serve_round()
        late = quantile(await both.expert.run_open_loop(compared.served_rate / 2, 200), 0.99)
    settings = compared.settings
    return _figures(
        workload,
        f"{workload.about}, large: {describe(compared)}",
        share=compared.share,
        busy=sum(busy) / len(busy) / 100,
        late=late * compared.offline_rate / settings.batch,
        gain=settings.rate / settings.single_rate,
    )


def _figures(
    workload: Workload,
    note: str,
    *,
    share: float | None = None,
    late: float | None = None,
    busy: float | None = None,
    gain: float | None = None,
) -> list[Row]:
    """The rows of a workload; gaps with the note for values that are None."""

    def row(
        figure: str, value: float | None, unit: str, about: str, target: float | None, *, at_least: bool = True
    ) -> Row:
        name = f"gpu.{workload.modality}_{figure}"
        if value is None:
            return gap(name, unit, target, note, at_least=at_least)
        return Row(name, round(value, 3), unit, target, note=about, at_least=at_least)

    batching = "items a second offline in the best batches, over those one at a time"
    return [
        row("share", share, "", note, 0.9),
        row("busy", busy, "", "utilization under that load, from nvidia-smi", 0.9),
        row("half_load_p99", late, "batches", "99th percentile at half load, over the best batch", 2.5, at_least=False),
        row("batching_gain", gain, "", batching, None),
    ]


@asynccontextmanager
async def _utilization() -> AsyncIterator[list[float]]:
    """Utilization of the first GPU in percent, ten times a second; complete when the block has ended."""
    samples: list[float] = []
    command = ("nvidia-smi", "-i", "0", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")
    process = await asyncio.create_subprocess_exec(*command, "-lms", POLL_MILLISECONDS, stdout=PIPE)

    async def read() -> None:
        assert process.stdout
        samples.extend([float(line) async for line in process.stdout])

    reading = asyncio.create_task(read())
    try:
        yield samples
    finally:
        process.terminate()
        await process.wait()
        await reading


async def _smi(query: str) -> str:
    command = ("nvidia-smi", query, "--format=csv,noheader")
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=DEVNULL)
    output, _ = await process.communicate()
    return "" if process.returncode else output.decode().strip()

"""The benchmark of experts with torch models: tiny models on the CPU, and no GPU."""

from pathlib import Path

import pytest
import torch

from tests.bench import gpu
from tests.bench.expert_models import files, offline
from tests.bench.expert_models.comparison import Load, contenders
from tests.bench.expert_models.workloads import VISION, WORKLOADS, Workload
from tests.bench.report import show

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with tiny checkpoints and the inputs of all workloads."""
    folder = tmp_path_factory.mktemp("models")
    files.write(folder, "tiny")
    return folder


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.modality)
def test_offline_run_processes_every_file(models: Path, workload: Workload) -> None:
    steps = offline.LOADERS[workload.modality](models / workload.model, torch.device("cpu"))
    inputs = sorted(files.input_folder(models, workload).iterdir())[:4]
    fastest = offline.find_fastest(steps, inputs, batches=(1, 4))
    assert fastest.batch in {1, 4}
    assert fastest.rate >= fastest.single_rate > 0


async def test_expert_and_offline_run_are_compared(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EXPERT_MODELS_URL", "ARTIFACTS_URL", "HF_HUB_OFFLINE"):
        monkeypatch.setenv(name, "")  # restored after the test; the comparison sets them
    async with contenders(VISION, models, Load("cpu", count=8, callers=4, batches=(1, 4))) as both:
        compared = await both.compare()
    assert len(compared.served) == len(compared.offline)
    assert compared.share > 0


async def test_figures_are_gaps_without_a_gpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    rows = await gpu.rows()
    assert len(rows) == 4 * len(WORKLOADS)
    assert {row.verdict for row in rows} == {"not measured"}
    assert {row.note for row in rows} == {"no GPU"}
    show(rows)
    assert capsys.readouterr().out.count("not measured") == len(rows)

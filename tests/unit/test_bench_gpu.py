"""The GPU benchmark on a machine without a GPU."""

import pytest

from tests.bench import gpu
from tests.bench.large.tasks import MODELS, Large, batch_seconds
from tests.bench.report import show

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", MODELS)
def test_large_models_run_batches_on_the_meta_device(name: str) -> None:
    model = Large(name, "meta")
    assert batch_seconds(model, int(model.batching.items), batches=2) > 0


async def test_figures_are_gaps_without_a_gpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    rows = await gpu.rows()
    assert len(rows) == 4 * len(MODELS)
    assert {row.verdict for row in rows} == {"not measured"}
    assert {row.note for row in rows} == {"no GPU"}
    show(rows)
    assert capsys.readouterr().out.count("not measured") == len(rows)

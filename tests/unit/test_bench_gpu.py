"""What the benchmark runs on a GPU, as far as it can be seen without one."""

import pytest

from tests.bench import gpu
from tests.bench.large.tasks import MODELS, Large, batch_seconds
from tests.bench.report import show

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", MODELS)
def test_the_models_of_real_size_take_their_input_in_batches(name: str) -> None:
    model = Large(name, "meta")
    assert batch_seconds(model, model.batching.items, batches=2) > 0


async def test_without_a_gpu_its_figures_are_a_gap_that_is_seen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    rows = await gpu.rows()
    assert len(rows) == 4 * len(MODELS)
    assert {(row.verdict, row.note) for row in rows} == {("not measured", "no GPU")}
    show(rows)
    assert capsys.readouterr().out.count("not measured") == len(rows)

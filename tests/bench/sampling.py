"""Time to sample one token of one row from Qwen's vocabulary, on one core."""

import statistics
import sys
import time
from importlib.util import find_spec
from types import SimpleNamespace

from experts.torch_host.sampling import Sampling, build_sampler
from tests.bench.processes import printed
from tests.bench.rows import Row, gap

VOCABULARY = 151_936
"""Tokens of Qwen's vocabulary."""
ROWS, ROUNDS = 4, 31
TARGET_MILLISECONDS = 2.0
RECOMMENDATIONS = {"top_k": (20, 0.8), "top_p": (0, 0.9), "all": (0, 1.0)}
"""top_k and top_p of the model by row: Qwen's, one without top_k, and none."""


async def rows() -> list[Row]:
    names = {name: f"sampling.{name}_ms" for name in RECOMMENDATIONS}
    if not find_spec("transformers"):
        why = "transformers is not installed: pip install 'hugginggpt[text]'"
        return [gap(name, "ms", TARGET_MILLISECONDS, why) for name in names.values()]
    return [await _row(names[name], *recommended) for name, recommended in RECOMMENDATIONS.items()]


async def _row(name: str, top_k: int, top_p: float) -> Row:
    taken = float(await printed("tests.bench.sampling", top_k, top_p, hide_stderr=True))
    note = f"top-k {top_k or 'none'}, top-p {top_p:g}; batches of {ROWS}, median of {ROUNDS}"
    return Row(name, round(taken, 3), "ms", TARGET_MILLISECONDS, note=note)


def milliseconds(top_k: int, top_p: float) -> float:
    """Median time per row and token on one thread, with random scores."""
    import torch  # noqa: PLC0415  # may not be installed

    torch.set_num_threads(1)
    scores = torch.randn(ROWS, VOCABULARY, generator=torch.Generator().manual_seed(0)) * 3
    sampler = build_sampler(SimpleNamespace(top_k=top_k, top_p=top_p), Sampling(temperature=0.7, seed=1))
    taken = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        sampler(None, scores).argmax(-1)
        taken.append((time.perf_counter() - started) * 1000 / ROWS)
    return statistics.median(taken)


if __name__ == "__main__":
    print(milliseconds(int(sys.argv[1]), float(sys.argv[2])))

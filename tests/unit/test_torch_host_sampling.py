"""Sampling of tokens: distribution, top-k, top-p and seeds."""

from types import SimpleNamespace
from typing import Any

import pytest

from experts.torch_host import sampling as sampling_module
from experts.torch_host.sampling import Sampling, build_sampler, draw_tokens

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SCORES = [0.1, 2.0, -1.0, 1.5, 0.0, 1.0, -3.0, 1.4]
DRAWS = 20_000
CHI_SQUARE_LIMIT = 24.3
"""Exceeded by one in a thousand correct samples of eight tokens (seven degrees of freedom)."""


def sampler(*, top_k: int | None = None, top_p: float | None = None, temperature: float = 1.0, seed: int = 3) -> Any:
    return build_sampler(SimpleNamespace(top_k=top_k, top_p=top_p), Sampling(temperature, seed))


def tokens(processor: Any, *rows: list[float]) -> list[int]:
    """Tokens that greedy decoding chooses after the processor."""
    chosen: list[int] = processor(None, torch.tensor(rows)).argmax(-1).tolist()
    return chosen


def uniform_numbers(count: int) -> Any:
    return torch.rand(count, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def expected_probabilities(scores: Any, top_k: int, top_p: float) -> Any:
    """Probabilities of the tokens that transformers' own processors leave."""
    if top_k:
        scores = transformers.TopKLogitsWarper(top_k)(None, scores)
    if top_p < 1:
        scores = transformers.TopPLogitsWarper(top_p)(None, scores)
    return scores.softmax(-1)


@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (3, 1.0), (0, 0.8), (5, 0.7), (1, 1.0), (0, 0.01), (50, 1.0)])
def test_draws_follow_the_probabilities_of_the_remaining_tokens(top_k: int, top_p: float) -> None:
    scores = torch.tensor([SCORES])
    expected = expected_probabilities(scores, top_k, top_p)[0].double()
    drawn = draw_tokens(scores.expand(DRAWS, -1), uniform_numbers(DRAWS), top_k=top_k, top_p=top_p)
    counts = torch.bincount(drawn.flatten(), minlength=len(SCORES)).double()
    assert counts[expected == 0].sum() == 0
    kept = expected > 0
    deviation = ((counts - DRAWS * expected) ** 2 / (DRAWS * expected))[kept].sum()
    assert deviation < CHI_SQUARE_LIMIT


def test_draws_follow_the_probabilities_of_a_large_vocabulary() -> None:
    scores = torch.randn(1, 50_000, generator=torch.Generator().manual_seed(1)) * 3
    groups = torch.arange(50_000) % 8
    expected = torch.zeros(8).double().index_add_(0, groups, scores[0].double().softmax(-1))
    drawn = draw_tokens(scores.expand(2000, -1), uniform_numbers(2000)).flatten()
    counts = torch.bincount(groups[drawn], minlength=8).double()
    assert ((counts - 2000 * expected) ** 2 / (2000 * expected)).sum() < CHI_SQUARE_LIMIT


@pytest.mark.parametrize("scale", [0.0, 1.0, 4000.0])
def test_top_p_is_exact_whether_or_not_few_candidates_suffice(monkeypatch: pytest.MonkeyPatch, scale: float) -> None:
    scores = torch.randn(1, 40, generator=torch.Generator().manual_seed(2)).expand(500, -1) * scale
    drawn = draw_tokens(scores, uniform_numbers(500), top_p=0.9)
    monkeypatch.setattr(sampling_module, "_CANDIDATES", 4)
    assert draw_tokens(scores, uniform_numbers(500), top_p=0.9).equal(drawn)


def test_top_p_of_a_row_is_independent_of_a_row_that_needs_more_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling_module, "_CANDIDATES", 4)
    tied, flat = [3.0, 3.0, 3.0, -9.0, -9.0, -9.0, -9.0, -9.0], [0.0] * 8
    alone, batched = sampler(top_p=0.5), sampler(top_p=0.5)
    expected = [tokens(alone, tied)[0] for _ in range(50)]
    assert [tokens(batched, tied, flat)[0] for _ in range(50)] == expected


def test_largest_number_draws_a_token_of_the_vocabulary() -> None:
    largest = torch.tensor([[1 - 2**-53]], dtype=torch.float64)
    assert draw_tokens(torch.tensor([SCORES]), largest).tolist() == [[7]]


def test_impossible_token_is_never_drawn() -> None:
    scores = torch.tensor([[float("-inf"), 0.0, float("-inf"), 0.0]]).expand(1000, -1)
    assert set(draw_tokens(scores, uniform_numbers(1000)).flatten().tolist()) == {1, 3}


def test_low_temperature_draws_the_most_likely_token() -> None:
    chosen = sampler(temperature=0.01)
    assert {tokens(chosen, SCORES)[0] for _ in range(200)} == {1}


def test_seeded_row_is_independent_of_its_batch() -> None:
    other = [0.0] * 8
    alone, first, second = (sampler(top_p=0.9) for _ in range(3))
    expected = [tokens(alone, SCORES)[0] for _ in range(20)]
    assert [tokens(first, SCORES, other)[0] for _ in range(20)] == expected
    assert [tokens(second, other, SCORES)[1] for _ in range(20)] == expected


def test_number_of_remaining_tokens_does_not_change_later_draws() -> None:
    one_left, all_left = [9.0, *[-9.0] * 7], [0.0] * 8
    after_one, after_all = sampler(top_p=0.9), sampler(top_p=0.9)
    tokens(after_one, one_left)
    tokens(after_all, all_left)
    assert [tokens(after_one, SCORES) for _ in range(20)] == [tokens(after_all, SCORES) for _ in range(20)]


def test_seeds_draw_different_tokens() -> None:
    first, second = sampler(seed=1), sampler(seed=2)
    assert [tokens(first, SCORES) for _ in range(20)] != [tokens(second, SCORES) for _ in range(20)]


def test_rows_without_a_seed_draw_independently() -> None:
    unseeded = build_sampler(SimpleNamespace(top_k=None, top_p=None), Sampling(1.0))
    first, second = zip(*(tokens(unseeded, [0.0] * 50, [0.0] * 50) for _ in range(20)), strict=True)
    assert first != second

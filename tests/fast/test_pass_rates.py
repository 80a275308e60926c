"""pass@k and its errors, against counting every subset, closed forms and exact enumeration."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from real_openrlhf.evaluation.results import bootstrap, pass_at, powers_of_two, sampling_error

TABLES = st.integers(1, 6).flatmap(
    lambda k: st.lists(st.lists(st.integers(0, 1), min_size=k, max_size=k), min_size=1, max_size=5)
)


@settings(deadline=None)  # the machine may be busy
@given(TABLES)
def test_pass_at_k_counts_the_subsets_with_a_hit(table):
    samples = len(table[0])
    for k in range(1, samples + 1):
        shares = [np.mean([any(subset) for subset in combinations(row, k)]) for row in table]
        assert pass_at(k, np.array(table)) == pytest.approx(np.mean(shares), abs=1e-12)


def test_pass_at_one_is_the_mean_and_large_counts_do_not_overflow():
    verdicts = np.zeros((2, 1024), dtype=int)
    verdicts[0, :512] = 1
    assert pass_at(1, verdicts) == pytest.approx(0.25)
    assert pass_at(1024, verdicts) == pytest.approx(0.5)


def test_bootstrap_has_the_closed_form_error():
    """Resampling n problems with replacement: variance of the mean = population variance / n."""
    scores = np.random.default_rng(0).random(83)
    means = bootstrap(scores, np.random.default_rng(1))
    assert means.std(ddof=1) == pytest.approx(scores.std() / np.sqrt(83), rel=0.03)
    assert means.mean() == pytest.approx(scores.mean(), abs=4 * means.std() / np.sqrt(len(means)))


def test_bootstrap_draws_every_problem_alike():
    """Every equally likely resample of three problems, enumerated."""
    scores = np.array([0.0, 0.25, 1.0])
    exact = [np.mean(draw) for draw in product(scores, repeat=3)]
    means = bootstrap(scores, np.random.default_rng(2))
    for value in sorted(set(exact)):
        share = exact.count(value) / len(exact)
        tolerance = 5 * np.sqrt(share * (1 - share) / len(means))
        assert np.isclose(means, value).mean() == pytest.approx(share, abs=tolerance)


def test_sampling_error_is_unbiased_over_every_outcome():
    """Two problems of known pass rates, three samples each: the mean estimate of the variance is the variance."""
    rates, k = (0.3, 0.8), 3
    outcomes = list(product([0, 1], repeat=2 * k))
    expected_variance = expected_mean = expected_square = 0.0
    for outcome in outcomes:
        table = np.array(outcome).reshape(2, k)
        chance = np.prod([p if hit else 1 - p for p, row in zip(rates, table, strict=True) for hit in row])
        expected_variance += chance * sampling_error(table) ** 2
        expected_mean += chance * table.mean()
        expected_square += chance * table.mean() ** 2
    assert expected_variance == pytest.approx(expected_square - expected_mean**2)


def test_one_sample_has_no_sampling_error():
    assert sampling_error(np.array([[1], [0]])) is None


@pytest.mark.parametrize(("k", "expected"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (16, [1, 2, 4, 8, 16])])
def test_which_k_are_reported(k, expected):
    assert powers_of_two(k) == expected

import pytest

from benchmarks.figures import jain, percentile


@pytest.mark.parametrize(
    ("shares", "index"),
    [([5, 5, 5, 5], 1.0), ([9, 0, 0], 1 / 3), ([7], 1.0), ([1, 3], 0.8), ([0, 0], 0.0)],
)
def test_jains_index_is_1_for_equal_shares_and_1_of_n_where_one_has_all(shares: list[float], index: float) -> None:
    assert jain(shares) == pytest.approx(index)


@pytest.mark.parametrize(
    ("values", "percent", "found"),
    [
        (range(1, 101), 50, 50),
        (range(1, 101), 99, 99),
        (range(1, 101), 100, 100),
        ([3, 1, 2], 50, 2),
        ([3, 1, 2], 99, 3),
        ([4], 1, 4),
        ([], 50, 0),
    ],
)
def test_a_percentile_is_the_smallest_value_that_so_many_do_not_exceed(
    values: list[float], percent: float, found: float
) -> None:
    assert percentile(list(values), percent) == found

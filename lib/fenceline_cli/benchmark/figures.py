"""Figures of a load: how evenly its work was shared, and how long its requests took."""

from __future__ import annotations

import math
from collections.abc import Sequence


def jain(shares: Sequence[float]) -> float:
    """Return Jain's index of fairness: 1 if all shares are equal, 1/n if one of n has everything.

    Source: Jain, Chiu, Hawe, "A quantitative measure of fairness", 1984. With nothing to share it is 0.
    """
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 0.0


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest of the values that is not below ``percent`` of them (nearest rank); 0 without values."""
    ordered = sorted(values)
    return ordered[max(math.ceil(percent / 100 * len(ordered)), 1) - 1] if ordered else 0.0

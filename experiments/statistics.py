"""How sure we are: of a mean of several runs, of a correlation."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from operator import mul
from random import Random
from statistics import correlation, fmean, stdev
from typing import Any

from experiments.experiment import Row

# Student's t for a two-sided 95 % interval, by degrees of freedom.
_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip

CI = "_ci95"
"""Ends the name of the column that holds half the width of the confidence interval."""


def half_width(values: Sequence[float]) -> float:
    """Half the 95 % confidence interval of the mean of two or more values."""
    freedom = len(values) - 1
    t = _T95[freedom - 1] if freedom <= len(_T95) else 1.96
    return t * stdev(values) / sqrt(len(values))


def correlation_test(
    xs: Sequence[float], ys: Sequence[float], random: Random, permutations: int = 9_999
) -> tuple[float, float]:
    """Pearson's r of two columns, and p: how probable one at least so far from 0 is by chance.

    It is found by permutations of a column, so no distribution has to be assumed.
    """
    r = correlation(xs, ys)
    # With the means taken off r only differs from this sum by a factor that no permutation changes.
    mean_x, mean_y = fmean(xs), fmean(ys)
    left, right = [x - mean_x for x in xs], [y - mean_y for y in ys]
    # A permutation that only swaps equal values must count, whatever is rounded.
    found = abs(sum(map(mul, left, right))) * (1 - 1e-9)
    as_far = 0
    for _ in range(permutations):
        random.shuffle(left)
        as_far += abs(sum(map(mul, left, right))) >= found
    return r, (as_far + 1) / (permutations + 1)


def combine(runs: Sequence[Sequence[Row]], keys: Sequence[str]) -> list[dict[str, Any]]:
    """One row per case: keys as they are, numbers as mean and interval."""
    if len(runs) == 1:
        return [dict(row) for row in runs[0]]
    cases: dict[tuple[Any, ...], list[Row]] = {}
    for rows in runs:
        for row in rows:
            cases.setdefault(tuple(row[key] for key in keys), []).append(row)
    return [_combined(rows, keys) for rows in cases.values()]


def _combined(rows: list[Row], keys: Sequence[str]) -> dict[str, Any]:
    combined: dict[str, Any] = {key: rows[0][key] for key in keys}
    for column in rows[0]:
        if column in combined:
            continue
        values = [row[column] for row in rows]
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            combined[column] = fmean(values)
            if len(values) > 1:
                combined[column + CI] = half_width(values)
        else:
            combined[column] = values[0] if len(set(values)) == 1 else values
    return combined

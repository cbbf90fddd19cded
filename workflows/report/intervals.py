"""How far a share may lie from the probability behind it.

In: a count out of a number of draws. Out: a confidence interval.
"""

from __future__ import annotations

import math

# The 97.5% point of the normal distribution.
Z_95 = 1.959963984540054


def wilson_interval(count: int, total: int, z: float = Z_95) -> tuple[float, float] | None:
    """The Wilson score interval of a binomial share (Wilson 1927, "Probable inference").

    Args:
        count: successes, 0 to total.
        total: independent draws.
        z: normal quantile; the default makes a 95% interval.

    Returns:
        lower and upper end, within [0, 1]; None where nothing was drawn.
    """
    if not total:
        return None
    share = count / total
    shrink = 1 + z * z / total
    centre = (share + z * z / (2 * total)) / shrink
    half = z / shrink * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return max(0.0, centre - half), min(1.0, centre + half)

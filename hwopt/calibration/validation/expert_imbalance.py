"""Default load imbalance of expert parallelism: how unevenly tokens reach the ranks, if a row does not state it."""

import math
from statistics import NormalDist

POPULARITY_SPREAD = 1.3
"""Standard deviation over mean of the tokens per expert of a layer, 0.7 to 3.

**Source:** estimate. SGLang's load balancer made prefill on 32 ranks 1.49 times and decode on 72 ranks 2.54 times faster
(LMSYS, large-scale expert parallelism, May 2025, recalled). This implies 0.7 and 1.2 if experts took all the time, more
otherwise. aiconfigurator measures kernels with a power law whose spread is 1.1 for 16 experts and 3.2 for 256.
"""


def busiest_rank(experts: float, ranks: float) -> float:
    """Return the tokens of the busiest rank over the mean: `1 + c sqrt(e / E) sqrt(1 - 1 / e) m(e)`.

    Each of the e ranks has E / e experts whose loads have the relative deviation c. The total over ranks is fixed, so that
    loads are negatively correlated. m(e) is the mean of the largest of e standard normal numbers by Blom's formula: the
    quantile at `(e - 0.375) / (e + 0.25)`.

    **Arguments:** `experts` of a layer; `ranks` that share them.

    **Source:** Blom, Statistical Estimates and Transformed Beta-Variables, 1958.
    """
    if ranks <= 1.0:
        return 1.0
    largest = NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25))
    return 1.0 + POPULARITY_SPREAD * math.sqrt(ranks / experts) * math.sqrt(1.0 - 1.0 / ranks) * largest

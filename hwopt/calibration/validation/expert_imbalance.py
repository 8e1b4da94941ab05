"""How unevenly tokens come to the ranks that experts are spread over, where no row says it."""

import math
from statistics import NormalDist

POPULARITY_SPREAD = 1.3
"""Standard deviation over mean of the tokens that experts of a layer get, 0.7 to 3.

**Source:** estimate. SGLang's load balancer made prefill on 32 ranks 1.49 and decoding on 72 ranks 2.54 times faster (LMSYS,
large-scale expert parallelism, May 2025, recalled), which asks for 0.7 and 1.2 if experts took all time, more if not;
aiconfigurator measures kernels with a power law whose spread is 1.1 for 16 experts and 3.2 for 256.
"""


def busiest_rank(experts: float, ranks: float) -> float:
    """Tokens of the busiest rank over the mean: `1 + c sqrt(e / E) sqrt(1 - 1 / e) m(e)`.

    A rank has E / e experts whose loads differ by c; the sum over ranks is given, so that each moves against the others. m(e) is
    the mean of the largest of e normal numbers, by Blom: the quantile at `(e - 0.375) / (e + 0.25)`.

    **Arguments:** `experts` of a layer, `ranks` that share them. **Source:** Blom, Statistical Estimates and Transformed
    Beta-Variables, 1958.
    """
    if ranks <= 1.0:
        return 1.0
    largest = NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25))
    return 1.0 + POPULARITY_SPREAD * math.sqrt(ranks / experts) * math.sqrt(1.0 - 1.0 / ranks) * largest

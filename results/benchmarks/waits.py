"""The four constants of the chance to wait for a slot (`hwopt.model.serving.slots.slot_wait`), fitted. From the top of a checkout:

    python -m results.benchmarks.waits > results/reference/waits.txt

Half a minute of a processor; it needs a C compiler, `cc`, as `percentiles` does, whose services it takes. Odds of waiting are
`e h / body`, and `log e = log a + b log z + c log(1 - phi) + d log(rho)` less what the form has of arrivals: least squares of the
logarithm of simulated odds over `h / body`, on every second service where at least 2 % of the requests wait. Where fewer do, the
tail of how many sequences there are decides, not these constants; the others say how far they are off where nothing was fitted.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hwopt.model.serving import queueing, slots, tails
from results.benchmarks.percentiles import Case, counted, drawn_together, numbers_of, requests, seen_together
from tests.in_numpy import in_numpy

COMMITTED = (slots._EDGE, slots._SHAKEN, slots._HELD, slots._LOADED)
"""What the form has."""

LEAST, MOST = 0.02, 0.9
"""Shares of requests that wait between which a service says something about the constants."""

_PARTS = 2
"""Simulations of a service, each of as many requests as one of `percentiles`."""


class Services(NamedTuple):
    """Services as the fit sees them."""

    simulated: np.ndarray  # (case,) odds of waiting, logarithm
    bare: np.ndarray  # (case,) the form's with all constants taken out
    factors: np.ndarray  # (case, 4): 1, log z, log(1 - phi), log(rho)

    def off(self, constants: ArrayLike) -> np.ndarray:
        """Logarithms of the form's odds over simulated ones."""
        return self.bare + self.factors @ _logs(constants) - self.simulated


def _logs(constants: ArrayLike) -> np.ndarray:
    """Constants as they multiply factors: the first by its logarithm."""
    first, *others = np.asarray(constants, float)
    return np.array([np.log(first), *others])


def _form(numbers: list) -> list:
    """Logarithm of the odds, and factors."""
    group, asked = tails._StreamGroup(*numbers[:7]), queueing.Requests(*numbers[7:])
    at = group.passing(asked)
    share = slots.slot_wait(asked, at, group.load).share
    return [share / (1.0 - share), slots.peakedness(asked, at), 1.0 - at.per_s * at.prompt_s, group.load]


def waits(number: int, case: Case) -> float:
    """Share of the requests of a service that wait for a slot, simulated. **Arguments:** `number`, for its random numbers."""
    return float(np.mean([counted(case, requests(case), number * 100_003 + part).waits for part in range(_PARTS)]))


def services(cases: list[Case], numbers: list[int]) -> Services:
    """Those of some cases where neither too few nor too many wait. **Arguments:** `numbers` of the cases."""
    with ThreadPoolExecutor(2) as pool:  # they spend their time in C
        found = np.array(list(pool.map(waits, numbers, cases)))
    rows = np.flatnonzero((found >= LEAST) & (found <= MOST))
    some = found[rows]
    odds, *logs = np.log([np.ravel(in_numpy(_form)(numbers_of(cases[row]))) for row in rows]).T
    factors = np.stack([np.ones_like(odds), *logs], axis=1)
    return Services(np.log(some / (1.0 - some)), odds - factors @ _logs(COMMITTED), factors)


def fitted(seen: Services) -> tuple[np.ndarray, np.ndarray]:
    """The four constants, and their standard errors by what the fit leaves."""
    inverse = np.linalg.inv(seen.factors.T @ seen.factors)
    logs = inverse @ seen.factors.T @ (seen.simulated - seen.bare)
    constants = np.array([np.exp(logs[0]), *logs[1:]])
    left = seen.off(constants)
    errors = np.sqrt(np.diag(inverse) * (left @ left) / (len(left) - len(logs)))
    return constants, errors * np.array([constants[0], 1.0, 1.0, 1.0])


def halves() -> tuple[Services, Services]:
    """Services that the constants are fitted to, every second one, and the others."""
    cases = seen_together() + drawn_together()
    one, other = (list(range(first, len(cases), 2)) for first in (1, 0))
    return services(cases[1::2], one), services(cases[::2], other)


def table() -> str:
    seen, left = halves()
    (found, errors), rms = fitted(seen), lambda each: float(np.sqrt(np.mean(each * each)))
    names = ("a", "b, of z", "c, of 1 - phi", "d, of rho")
    lines = [
        "Constants of the chance to wait for a slot, e = a z^b (1 - phi)^c rho^d, fitted to simulated services.",
        f"Every second service beside `percentiles` with {LEAST:.0%} to {MOST:.0%} of requests waiting: {len(seen.simulated)}; "
        f"{len(left.simulated)} left out.",
        "",
        f"  {'':16s}{'fitted':>9s}{'s.e.':>9s}{'in the form':>13s}",
        *(
            f"  {name:16s}{a:9.3f}{e:9.3f}{b:13.3f}"
            for name, a, e, b in zip(names, found, errors, COMMITTED, strict=True)
        ),
        "",
        "Odds of waiting beside simulated ones, root mean square and worst, of the logarithm:",
        f"  {'':16s}{'fitted':>9s}{'in the form':>22s}{'worst':>9s}",
    ]
    for name, some in (("fitted to", seen), ("left out", left)):
        own = some.off(COMMITTED)
        lines.append(f"  {name:16s}{rms(some.off(found)):9.3f}{rms(own):22.3f}{np.abs(own).max():9.3f}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())

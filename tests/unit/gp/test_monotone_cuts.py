"""Rows that a limit on a function leaves of products of its arguments: none cuts off a point within the limit."""

import numpy as np
import pytest

from hwopt.solver.gp import monotone_cuts
from hwopt.solver.gp.outer_linearization import monotone
from hwopt.solver.gp.signomial import Algebra, number
from hwopt.trace.monotone_primitives import EITHER, RISES, LowerEnvelope, MonotonePrimitive

WAIT = MonotonePrimitive(
    "test_wait", lambda load, each, slots: each * (1.0 + load / (1.01 - load) / slots), (RISES, RISES, EITHER)
)
TIME = MonotonePrimitive(
    "test_time",
    lambda rate, each, slots: each + each * rate * each / (1.01 - rate * each) / slots,
    (RISES, RISES, EITHER),
    LowerEnvelope(WAIT, ({0: 1.0, 1: 1.0}, {1: 1.0}, {2: 1.0})),
)
"""A time of which the load is the rate by what each takes, as its floor knows it; here they are the same."""


def _boxes(rng, count):
    low = np.stack([rng.uniform(0.05, 0.5, count), rng.uniform(0.3, 1.0, count), np.round(rng.uniform(1, 6, count))])
    high = low * np.exp(rng.uniform(0.0, 0.6, (3, count)))
    high[0] = np.minimum(high[0], 1.0 / high[1])
    return np.minimum(low, high), high


def _rows(low, high, limit):
    algebra = Algebra()
    arguments = [algebra.variable(name, a, b) for name, a, b in zip(("rate", "each", "slots"), low, high, strict=True)]
    share = algebra.over(monotone(algebra, TIME, arguments), number(limit))
    return monotone_cuts.cut_rows(algebra, share, "time")


def test_no_point_within_the_limit_breaks_a_row():
    """And each cuts off a part of the boxes."""
    rng = np.random.default_rng(0)
    low, high = _boxes(rng, 400)
    limit = rng.uniform(TIME.least(*low, *high), TIME.most(*low, *high))
    rows = _rows(low, high, limit)
    assert list(rows) == monotone_cuts.cut_labels("time")
    cut = dict.fromkeys(rows, 0)
    for _ in range(200):
        x = low * (high / low) ** rng.uniform(size=low.shape)
        holds = TIME.on_numbers(*x) <= limit
        for name, row in rows.items():
            ((key, c),) = row.terms.items()
            value = c * np.prod([x[atom] ** power for atom, power in key], axis=0)
            assert (value <= 1.0)[holds].all(), name
            cut[name] += int((value > 1.0).sum())
    assert min(cut.values()) > 1000


def test_where_nothing_is_within_the_limit_or_all_is():
    low, high = np.array([[0.2], [0.5], [2.0]]), np.array([[0.4], [1.0], [2.0]])
    for limit, most in ((1e3, 0.4), (1e-3, 0.1)):
        rows = _rows(low, high, np.array([limit]))
        ((_, c),) = rows[monotone_cuts.cut_labels("time")[0]].terms.items()
        np.testing.assert_allclose(1.0 / c, most, rtol=1e-2)


@pytest.mark.parametrize("limit", [0.9, 1.2])
def test_a_row_tends_to_the_curve_itself(limit):
    """One value of each: the largest load within the limit, by bisection, to a part of the box that 12 halvings leave."""
    low, high = np.array([[0.05], [0.6], [2.0]]), np.array([[1.6], [0.6], [2.0]])
    rows = _rows(low, high, np.array([limit]))
    ((_, c),) = rows[monotone_cuts.cut_labels("time")[0]].terms.items()
    rates = np.linspace(0.05, 1.6, 200_001)
    loads = 0.6 * rates[TIME.on_numbers(rates, np.full_like(rates, 0.6), np.full_like(rates, 2.0)) <= limit]
    assert loads.max() <= 1.0 / c.item() <= loads.max() * np.exp(np.log(32.0) / 4096 * 2.0)

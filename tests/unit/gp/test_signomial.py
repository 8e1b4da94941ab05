"""The algebra: ranges hold what they should, terms cancel, atoms are shared, maxima flatten."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwopt.solver.gp.signomial import ONE, ZERO, Algebra, AtomKind, Signomial, multiplied, number, raised
from tests.unit.gp.reading import value

NODES = 3
COUNT = 3


def algebra_of(low, high, granting=False):
    algebra = Algebra(granting=granting)
    return algebra, [algebra.variable(name, low, high) for name in "xyz"]


def random_signomial(random, algebra, atoms, depth):
    """A random signomial, built as a reader would."""
    if depth == 0:
        return atoms[random.integers(len(atoms))]
    a, b = (random_signomial(random, algebra, atoms, depth - 1) for _ in range(2))
    scale = number(np.where(random.uniform(size=NODES) < 0.2, 0.0, random.uniform(-1, 2, NODES)))
    choice = random.integers(9)
    if choice == 0:
        return algebra.plus(a, algebra.times(scale, b))
    if choice == 1:
        return algebra.minus(a, b)
    if choice == 2:
        return algebra.times(a, b)
    if choice == 3:
        return algebra.over(a, b) if algebra.positive(b) else a
    if choice == 4:
        return algebra.power(a, float(random.choice([-1.5, 0.5, 3.0]))) if algebra.positive(a) else b
    if choice == 5:
        return algebra.extreme((a, b, scale), AtomKind.maximum)
    if choice == 6:
        return algebra.extreme((a, b), AtomKind.minimum)
    if choice == 7:
        return algebra.exponential(algebra.times(number(0.1), a))
    more = algebra.plus(a, number(2.0))
    return algebra.logarithm(more) if (algebra.range(more)[0] > 1.0).all() else b


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**9))
def test_ranges_hold_sampled_values(seed):
    random = np.random.default_rng(seed)
    low = random.uniform(0.05, 1.5, NODES)
    high = low * np.where(random.uniform(size=NODES) < 0.3, 1.0, random.uniform(1, 20, NODES))
    algebra, atoms = algebra_of(low, high)
    read = [random_signomial(random, algebra, atoms, 3) for _ in range(3)]
    for _ in range(8):
        x = low * (high / low) ** random.choice([0.0, random.uniform(), 1.0], (COUNT, NODES))
        for e in read:
            found, inside = value(e, algebra, x)
            for each, least, most in [
                (found, *algebra.range(e)), *((inside[i], a.low, a.high) for i, a in enumerate(algebra.atoms))
            ]:  # fmt: skip
                slack = 1e-9 * (np.abs(each) + 1)
                with np.errstate(invalid="ignore"):
                    inside_range = (each >= least - slack) & (each <= most + slack)
                assert (inside_range | ~np.isfinite(each)).all()  # an exponential of an exponential leaves float64
    assert all((atom.low >= 0).all() for atom in algebra.atoms)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**9))
def test_what_is_called_positive_is(seed):
    random = np.random.default_rng(seed)
    for low, high in ((0.0, np.inf), (0.2, 3.0)):
        algebra, atoms = algebra_of(low, high)
        e = random_signomial(random, algebra, atoms, 3)
        x = random.uniform(max(low, 0.01), min(high, 9.0), (COUNT, NODES))
        found, inside = value(e, algebra, x)
        assert not algebra.positive(e) or (found > 0).all()
        for index, atom in enumerate(algebra.atoms):
            assert (inside[index] > 0 if atom.positive else inside[index] >= -1e-9).all()


def test_without_bounds_nothing_is_claimed_and_nothing_warned_of(recwarn):
    algebra, (x, y, _) = algebra_of(0.0, np.inf)
    for e in (algebra.plus(x, y), algebra.lifted(algebra.plus(x, y)), algebra.over(x, y), algebra.exponential(x)):
        low, high = algebra.range(e)
        assert low <= 1.0 and high == np.inf
    low, high = algebra.range(algebra.over(ONE, algebra.plus(x, y)))
    assert (low, high) == (0.0, np.inf)
    assert algebra.range(algebra.minus(x, y)) == (-np.inf, np.inf)
    assert not recwarn.list


def test_terms_cancel():
    algebra, (x, y, _) = algebra_of(0.5, 2.0)
    assert algebra.minus(algebra.plus(x, y), y).same(x)
    assert algebra.minus(x, x).terms == {}
    third = algebra.power(x, 1 / 3)
    assert algebra.times(algebra.times(third, third), third).same(x)
    assert algebra.power(algebra.power(x, 0.1), 10.0).same(x)
    total = algebra.plus(algebra.times(number(0.1), x), algebra.times(number(0.2), x))
    assert algebra.minus(total, algebra.times(number(0.3), x)).terms == {}
    both = algebra.times(algebra.plus(x, y), algebra.minus(x, y))
    assert both.same(algebra.minus(algebra.power(x, 2.0), algebra.power(y, 2.0)))
    some = algebra.minus(x, algebra.times(number(np.array([1.0, 0.5])), x))
    np.testing.assert_array_equal(next(iter(some.terms.values())), [0.0, 0.5])
    assert multiplied(raised(((0, 1.0),), 1 / 7), raised(((0, 1.0),), 6 / 7)) == ((0, 1.0),)


def test_sums_that_are_multiples_share_an_atom():
    algebra, (x, y, z) = algebra_of(0.5, 2.0)
    total = algebra.plus(x, y)
    scaled = algebra.times(algebra.times(number(3.0), z), total)
    a, b = algebra.power(total, -1.5), algebra.power(scaled, 0.5)
    assert len(algebra.atoms) == COUNT + 1
    ((left, _),), ((right, c),) = a.terms.items(), b.terms.items()
    assert left[-1][0] == right[-1][0] == COUNT and c == pytest.approx(np.sqrt(3.0))
    assert algebra.over(scaled, total).same(algebra.times(number(3.0), z))
    assert algebra.extreme((x, y), AtomKind.maximum).same(algebra.extreme((y, x), AtomKind.maximum))


def test_maxima_flatten_and_lose_what_is_never_largest():
    algebra, (x, y, z) = algebra_of(0.5, 2.0)
    largest = algebra.extreme((algebra.extreme((x, y), AtomKind.maximum), z), AtomKind.maximum)
    assert [len(a.parts) for a in algebra.atoms[COUNT:]] == [2, 3]
    assert algebra.extreme((x, ZERO), AtomKind.maximum) is x
    assert algebra.extreme((x, number(2.0)), AtomKind.minimum) is x
    assert algebra.extreme((x, algebra.plus(x, y)), AtomKind.maximum).same(algebra.plus(x, y))
    scaled = algebra.extreme((algebra.times(number(2.0), largest), algebra.times(number(2.0), x)), AtomKind.maximum)
    ((key, _),) = scaled.terms.items()
    assert len(algebra.atoms[key[0][0]].parts) == 3
    assert algebra.extreme((x, x), AtomKind.maximum) is x


def test_maxima_that_may_be_negative():
    """They are atoms less something, unless granted to be positive; never positive where they cannot be."""
    for granting in (False, True):
        algebra, (x, y, _) = algebra_of(0.5, 2.0, granting)
        e = algebra.extreme((algebra.minus(x, y), number(-1.0)), AtomKind.maximum)
        low, _ = algebra.range(e)
        assert (low > 0) == granting
        assert not algebra.atoms[-1].positive or not granting
        negative = algebra.extreme((algebra.minus(ZERO, x), algebra.minus(ZERO, y)), AtomKind.maximum)
        points = np.random.default_rng(0).uniform(0.5, 2.0, (COUNT, 9))
        np.testing.assert_allclose(value(negative, algebra, points)[0], -points[:2].min(0), rtol=1e-12)
        assert algebra.range(negative)[0] <= -2.0


def test_powers():
    algebra, (x, y, _) = algebra_of(0.5, 2.0)
    points = np.random.default_rng(0).uniform(0.5, 2.0, (COUNT, 9))
    total, opposite = algebra.plus(x, y), algebra.minus(algebra.minus(ZERO, x), y)
    gap = algebra.minus(x, y)
    sums = points[0] + points[1]
    for e, wanted in (
        (algebra.power(opposite, -1.0), -1 / sums),
        (algebra.power(opposite, -2.0), sums**-2),
        (algebra.power(gap, 2.0), (points[0] - points[1]) ** 2),
        (algebra.power(total, 40.0), sums**40),
        (algebra.power(total, 0.0), 1.0),
        (algebra.power(algebra.minus(ZERO, x), -3.0), -(points[0] ** -3)),
    ):
        np.testing.assert_allclose(value(e, algebra, points)[0], wanted, rtol=1e-12, atol=1e-14)
    assert algebra.power(ZERO, 2.0) is ZERO
    assert np.isinf(algebra.power(ZERO, -1.0).constant).all()


def test_choices_ignore_what_is_not_chosen():
    algebra, (x, _, _) = algebra_of(0.5, 2.0)
    degree = np.array([1.0, 2.0])
    broken = algebra.over(x, number(degree - 1.0))
    chosen = algebra.where(degree > 1.0, broken, x)
    np.testing.assert_array_equal(next(iter(chosen.terms.values())), [1.0, 1.0])
    assert algebra.range(chosen)[1].max() == 2.0


def test_hulls_and_exponentials():
    algebra, (x, _, _) = algebra_of(0.5, 2.0)
    hull = algebra.hull(np.array([-3.0, 1.0]), np.array([2.0, 4.0]))
    np.testing.assert_array_equal(algebra.range(hull), [[-3.0, 1.0], [2.0, 4.0]])
    assert algebra.times(algebra.exponential(x), algebra.exponential(algebra.minus(ZERO, x))).same(ONE)
    np.testing.assert_allclose(algebra.exponential(number(2.0)).constant, np.exp(2.0))
    assert algebra.logarithm(x) is None
    assert isinstance(algebra.logarithm(algebra.plus(x, ONE)), Signomial)


def test_a_logarithm_of_what_may_be_one_is_known_by_its_range():
    algebra, (x, _, _) = algebra_of(0.0, 2.0)
    made = algebra.logarithm(algebra.plus(x, ONE))
    assert made is not None and not algebra.atoms[-1].positive
    np.testing.assert_allclose(np.array(algebra.range(made)).ravel(), [0.0, np.log(3.0)])
    assert algebra.logarithm(x) is None


def test_a_maximum_is_lifted_only_where_it_may_not_be_positive():
    """Nodes read together: what one of them needs makes the others no looser than alone."""
    ends = np.array([0.5, 3.0]), np.array([0.9, 4.0])

    def read(low, high):
        algebra = Algebra()
        x = algebra.variable("x", low, high)
        lifted = algebra.minus(x, ONE), algebra.minus(algebra.power(x, 0.5), ONE)
        return algebra, algebra.extreme(lifted, AtomKind.minimum)

    algebra, both = read(*ends)
    low, high = algebra.range(both)
    for node in range(2):
        alone, single = read(*(end[node : node + 1] for end in ends))
        np.testing.assert_allclose((low[node], high[node]), np.concatenate(alone.range(single)))
    inside = np.array([0.7, 3.5])
    found, _ = value(both, algebra, [inside])
    np.testing.assert_allclose(np.ravel(found), np.minimum(inside - 1.0, np.sqrt(inside) - 1.0))


def test_plain_terms_stay_beside_what_is_known_by_its_range():
    """Switches by the port and optics by what leaves a rack: only the latter's price is known by its range."""
    algebra = Algebra()
    ports, size = (algebra.variable(name, 1.0, np.array([8.0, 64.0])) for name in ("ports", "size"))
    algebra.narrow |= {0, 1}
    leaving = algebra.extreme([algebra.minus(ONE, algebra.over(number(4.0), size)), ZERO], AtomKind.maximum)
    optics = algebra.power(algebra.plus(algebra.times(leaving, ports), ONE), 2.0)
    price = algebra.gathered(algebra.plus(algebra.times(number(5.0), ports), optics))
    (key,) = ports.terms
    assert price.terms[key] == 5.0
    assert [algebra.atoms[atom].kind for other in price.terms for atom, _ in other if other != key] == [AtomKind.hull]
    np.testing.assert_allclose(algebra.range(price)[0], [6.0, 6.0])

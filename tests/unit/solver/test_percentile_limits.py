"""Limits on percentiles in programmes: rows that follow from them, designs that hold by a hair, racks of two groups of chips."""

import itertools
import math

import numpy as np
import pytest

import hwopt
from hwopt.design.exact import ExactModel
from hwopt.design.lattices import lattice_of
from hwopt.design.machine_parts import CLOCK_PIECES
from hwopt.integers.boxes import Boxes
from hwopt.model.report import FEASIBILITY_TOLERANCE
from hwopt.output.text.shadow_prices import price_words
from hwopt.solver.budget_prices import with_one_sided_prices
from hwopt.solver.gp import monotone_cuts
from hwopt.solver.gp.integer_relaxation import quantity_ranges
from hwopt.solver.gp.signomial import Algebra
from hwopt.solver.search.bounding import bound_nodes
from hwopt.solver.search.canonicalize import canonicalize, free_values
from hwopt.solver.search.heuristics.feasibility_repair import repaired
from hwopt.solver.search.node_relaxations import NodeRelaxations
from objectives.serve_cost import ServeCost
from tests.rotation import one_in

GOOD = {
    "tp": 4, "ep": 1, "pp": 1, "batch": 287, "replicas": 6, "prefill_tp": 4, "prefill_ep": 1, "prefill_pp": 8,
    "prefill_batch": 2, "prefill_replicas": 2, "groups": 2, "chips_per_rack": 8, "nics_per_server": 2, "hbm_stacks": 1,
    "dies": 1, "clock_ratio_piece": 242 * CLOCK_PIECES // 256,
}  # fmt: skip
"""A design for a p99 of 0.6 s."""

CLOSE = GOOD | {
    "batch": 236, "pp": 8, "replicas": 1, "prefill_tp": 16, "prefill_pp": 10, "prefill_batch": 3, "chips_per_rack": 16,
    "nics_per_server": 8, "clock_ratio_piece": CLOCK_PIECES,
}  # fmt: skip
"""One whose p99 is about 0.3 s at the fastest end of its piece."""


class Case:
    """A question with a limit on p99, and designs that satisfy it by the exact model."""

    def __init__(self, limit_s: float):
        self.problem = ServeCost(
            split="disaggregated", ttft_p99_limit_s=limit_s, ttft_percentile="mean", free="nics"
        ).problem()
        self.lattice = lattice_of(self.problem)
        self.programmes = NodeRelaxations(self.problem, self.lattice)
        self.model = ExactModel(self.problem).prepare()
        self.rng = np.random.default_rng(5)

    def point(self, design: dict) -> np.ndarray:
        return np.array([design[name] for name in self.lattice.names])

    def exact(self, points: np.ndarray, clocks: np.ndarray):
        rows = []
        for point, clock in zip(points, clocks, strict=True):
            design = self.lattice.design(point) | {"clock_ratio": clock}
            rows.append([design.get(each.name, each.lower) for each in self.problem.variables])
        return self.model.at(np.log(rows))

    def designs(self, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Points next to the good one, clocks in their pieces, and objectives, of designs that satisfy all limits."""
        base, at = self.point(GOOD), self.lattice.at
        points = np.repeat(base[None], 80 * count, axis=0)
        for name in ("batch", "replicas", "prefill_pp", "prefill_batch", "prefill_replicas", "nics_per_server"):
            factor = np.exp(self.rng.uniform(-0.4, 0.5, len(points)))
            points[:, at[name]] = np.maximum(1, np.round(base[at[name]] * factor))
        points[:, at["clock_ratio_piece"]] = self.rng.integers(CLOCK_PIECES * 25 // 32, CLOCK_PIECES + 1, len(points))
        points = points[self.lattice.valid(points)]
        (piece,) = self.lattice.pieces
        edges, number = np.array(piece.edges), points[:, at["clock_ratio_piece"]]
        clocks = edges[number - 1] * (edges[number] / edges[number - 1]) ** self.rng.uniform(size=len(points))
        exact = self.exact(points, clocks)
        good = np.flatnonzero(exact.violation <= FEASIBILITY_TOLERANCE)[:count]
        assert len(good) == count
        return points[good], clocks[good], exact.objective[good]

    def boxes(self, points: np.ndarray) -> Boxes:
        """Boxes that hold points, of many widths."""
        wide = np.isin(self.lattice.names, ["tp", "prefill_tp", "ep", "prefill_ep"], invert=True)
        low = np.maximum(1, np.round(points * self.rng.choice([1.0, 0.9, 0.5], points.shape))).astype(int)
        high = np.round(points * self.rng.choice([1.0, 1.1, 2.0], points.shape)).astype(int)
        piece = self.lattice.at["clock_ratio_piece"]
        high[:, piece] = np.minimum(high[:, piece], CLOCK_PIECES)
        boxes, left = self.lattice.propagate(Boxes(np.where(wide, low, points), np.where(wide, high, points)))
        assert len(left) == len(points)
        assert (boxes.low <= points).all() and (points <= boxes.high).all()
        return boxes


@pytest.fixture(scope="module")
def case():
    return Case(0.6)


@one_in(4, 2)
def test_true_designs_break_no_row_that_a_limit_implies(case):
    """Load and time of chips for prompts, of designs that satisfy the limit, beside what rows of their boxes allow."""
    points, clocks, _ = case.designs(60)

    def read(boxes, clocks=None):
        algebra = Algebra()
        values, _ = free_values(case.problem, case.lattice, algebra, quantity_ranges(case.lattice, boxes))
        if clocks is not None:
            values["clock_ratio"] = algebra.variable("clock_ratio", clocks * (1.0 - 1e-9), clocks * (1.0 + 1e-9))
        canonical = canonicalize(case.problem, algebra, values)
        ((floor, arguments),) = algebra.floors.values()
        return algebra, canonical, [monotone_cuts._product(algebra, powers, arguments) for powers in floor.products[:2]]

    algebra, _, products = read(Boxes.of_points(points), clocks)
    (load, most_load), (each_s, most_s) = map(algebra.range, products)
    assert (most_load <= load * (1.0 + 1e-6)).all() and (most_s <= each_s * (1.0 + 1e-6)).all()
    algebra, canonical, products = read(case.boxes(points))
    names, near = monotone_cuts.cut_labels("ttft_p99_limit_s"), 0
    assert list(canonical.implied) == names
    for name, (a, b) in zip(names, monotone_cuts.DIRECTIONS, strict=True):
        left = algebra.times(algebra.power(products[0], a), algebra.power(products[1], b))
        key = next(iter(left.terms))
        most = left.terms[key] / canonical.implied[name].terms[key]
        assert (load**a * each_s**b <= most).all(), name
        near += int((load**a * each_s**b > 0.8 * most).sum())
    assert near > 20  # rows lie close to designs


def test_no_design_is_below_the_bound_of_a_box_that_holds_it(case):
    points, _, objectives = case.designs(60)
    lower = bound_nodes(case.programmes, case.boxes(points)).lower
    assert (lower <= objectives + 1e-6).all(), (lower - objectives).max()


def test_two_groups_of_chips_share_a_rack(case):
    """24 and 64 chips fill racks of 8 alone: a box that knows both has no rack of 16 or 24."""
    point = case.point(GOOD)
    low, high = point.copy(), point.copy()
    high[case.lattice.at["chips_per_rack"]] = 24
    boxes, left = case.lattice.propagate(Boxes(low[None], high[None]))
    assert len(left) == 1
    assert boxes.points.all()
    low[case.lattice.at["chips_per_rack"]] = 16
    assert len(case.lattice.propagate(Boxes(low[None], high[None]))[1]) == 0


def test_a_design_that_satisfies_a_limit_at_the_end_of_its_piece_is_found():
    case = Case(0.3)
    point, (piece,) = case.point(CLOSE)[None], case.lattice.pieces
    slow, fast = piece.edges[-2:]
    over = case.exact(np.repeat(point, 2, axis=0), np.array([slow, fast])).constraints.max(axis=1)
    case = Case(0.3 * math.exp(over[1] + 0.1 * (over[0] - over[1])))  # kept on the last tenth of the piece
    assert over[0] > over[1] + FEASIBILITY_TOLERANCE
    assert case.exact(np.repeat(point, 2, axis=0), np.array([slow, fast])).violation.tolist()[0] > FEASIBILITY_TOLERANCE
    boxes = Boxes.of_points(point)
    known = bound_nodes(case.programmes, boxes)
    found, y = repaired(case.programmes, [case.model], boxes, known.programme, np.arange(1), known.answers.y.copy())
    clock = float(np.exp(y[0, known.programme.names.index("clock_ratio")]))
    exact = case.exact(point, np.array([clock])).one(0)
    assert exact.violation <= FEASIBILITY_TOLERANCE
    assert slow < clock < fast
    assert found[0] == pytest.approx(float(exact.objective), abs=1e-12)
    assert known.lower[0] <= found[0] <= known.lower[0] + 1e-3


@one_in(4, 0)
def test_what_a_limit_is_worth_is_what_every_design_of_a_small_lattice_says():
    """Few integers and a kept clock: the least objective of all designs under the limit a hundredth tighter and looser."""
    boxes = {
        "tp": (4, 8), "pp": (1, 2), "batch": (20, 44), "replicas": (18, 40), "nics_per_server": (1, 1), "chips_per_rack": (8, 8),
        "clock_ratio": (0.9, 0.9),
    }  # fmt: skip
    none = dict.fromkeys(("ttft_budget_s", "tpot_budget_s", "power_budget_w"), math.inf)
    asked = ServeCost(ttft_p99_limit_s=0.433, arrival_scv=2.0, free="nics", **none)
    problem = asked.problem().narrowed({name: tuple(map(float, ends)) for name, ends in boxes.items()})
    lattice, model = lattice_of(problem), ExactModel(problem).prepare()
    initial = lattice.initial_boxes()
    ends = [lattice.column(initial, name) for name in lattice.names]
    points = np.array(list(itertools.product(*(range(int(a.min()), int(b.max()) + 1) for a, b in ends))))
    points = points[lattice.valid(points)]
    known = lattice.quantities_at(lattice.columns(points.astype(float))) | {"clock_ratio": 0.9}
    columns = [np.broadcast_to(known.get(each.name, each.lower), len(points)) for each in problem.variables]
    exact = model.at(np.log(np.stack(columns, axis=1)))
    at = [each.name for each in problem.budgets].index("ttft_p99_limit_s")

    def least(factor: float) -> float:
        moved = exact.constraints.copy()
        moved[:, at] -= np.log(factor)
        return float(np.exp(exact.objective[moved.max(axis=1) <= FEASIBILITY_TOLERANCE].min()))

    solution = with_one_sided_prices(hwopt.optimize(problem, explain=False))
    budget = solution.budgets[at]
    assert solution.objective == pytest.approx(least(1.0), rel=1e-4)
    assert np.isnan(budget.elasticity) and "not known" in price_words(budget)
    less, more = budget.one_sided_prices
    step = 0.01 * budget.limit
    assert less.low <= (least(0.99) - least(1.0)) / step <= less.high
    assert more.low <= (least(1.0) - least(1.01)) / step <= more.high
    assert less.resolved and more.resolved and len(points) > 1000

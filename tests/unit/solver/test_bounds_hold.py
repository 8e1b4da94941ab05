"""Attacks on lower bounds: true designs in their boxes' rows, leaves inside bounded boxes, neighbours of answers."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import hwopt
from hwopt.design.exact import ExactModel
from hwopt.design.lattices import lattice_of
from hwopt.integers.boxes import Boxes
from hwopt.model.report import FEASIBILITY_TOLERANCE
from hwopt.model.training.learning import loss_floor
from hwopt.solver.interior_point.result import SolveStatus
from hwopt.solver.options import SEARCH
from hwopt.solver.search.bounding import bound_nodes
from hwopt.solver.search.branch_and_bound import search
from hwopt.solver.search.node_relaxations import NodeRelaxations
from tests.rotation import rotated, shared_out
from tests.unit.solver.rows import rows_held

QUESTIONS = {
    "default": (
        "train_cost",
        {"power_budget_w": 6e7, "capex_budget_usd": 2.2e9},
        {"tp": (8, 16), "cp": (1, 1), "zero": (1, 1)},
    ),
    "experts": (
        "tokens_per_dollar",
        {"workload": "deepseek-v3", "chip": "b200", "global_batch": 2048.0, "sequence_length": 8192.0},
        {"pp": (1, 16)},
    ),
    "serving": ("serve_cost", {}, {"pp": (1, 4)}),
    "disaggregated": ("serve_cost", {"split": "disaggregated"}, {"pp": (1, 2), "prefill_pp": (1, 2)}),
    "both": ("train_and_serve", {}, {"pp": (1, 8), "serve_pp": (1, 2), "chips_per_rack": (8, 32)}),
    "shape": ("loss_under_budget", {}, {"tp": (8, 8), "pp": (1, 16)}),
    "ramp": (
        "train_cost",
        {"power_budget_w": 6e7, "capex_budget_usd": 2.2e9, "batch_ramp": "512@2%,1024@20%,2048"},
        {},
    ),
    "energy": ("train_energy", {"chip": "gb200", "cooling": "air"}, {}),
}
QUICK = ("default", "serving", "disaggregated")
LONG = [
    pytest.param(name, marks=pytest.mark.search) for name in shared_out([x for x in QUESTIONS if x not in QUICK], 3)
]


class Case:
    """A question, some leaves of its lattice that satisfy its budgets, and their optima."""

    def __init__(self, name: str, count: int):
        objective, fields, boxes = QUESTIONS[name]
        with jax.enable_x64(True):
            problem = hwopt.objective(objective, **fields).problem().continuous
            self.problem = problem.narrowed({n: (float(a), float(b)) for n, (a, b) in boxes.items()})
            self.lattice = lattice_of(self.problem)
            self.programmes = NodeRelaxations(self.problem, self.lattice)
            self.model = ExactModel(self.problem).prepare()
            self.rng = np.random.default_rng(7)
            found = search(self.programmes, most_boxes=300, tolerance=1e-3)
            assert found.point is not None, name
            self.best = found
            self.points, self.designs, self.optima = [], [], []
            tried = np.array([found.point, *self.near(found.point, 30 * count)])
            known = bound_nodes(self.programmes, Boxes.of_points(tried), tolerance=SEARCH.tree.answer_gaps[0])
            programme, answers = known.programme, known.answers
            for i in np.flatnonzero((answers.status == SolveStatus.solved) & ~programme.inexact())[:count]:
                design = dict(zip(programme.names, np.exp(answers.y[i]), strict=True)) | self.lattice.design(tried[i])
                self.points.append(tried[i])
                self.designs.append({key: x for key, x in design.items() if key})
                self.optima.append(float(answers.objective[i] + programme.constant[i]))
        assert len(self.points) >= max(2, count // 3), len(self.points)

    def near(self, point, count):
        """Valid points a step or two from one, in one to three coordinates."""
        rows = []
        for _ in range(20 * count):
            row = point.copy()
            for column in self.rng.choice(len(row), self.rng.integers(1, 4), replace=False):
                row[column] = max(
                    1, round(row[column] * self.rng.choice([0.5, 0.8, 1, 1, 1.25, 2]) + self.rng.integers(-2, 3))
                )
            rows.append(row)
        rows = np.unique(np.array(rows), axis=0)
        rows = rows[self.lattice.valid(rows)]
        return self.rng.permutation(rows)[:count]

    def boxes_around(self, count):
        """Boxes of the lattice with a leaf inside, each propagated; and the number of that leaf."""
        which = self.rng.integers(len(self.points), size=count)
        inside = np.array(self.points)[which]
        low = np.maximum(1, np.round(inside * self.rng.choice([1.0, 0.9, 0.5, 0.1], inside.shape))).astype(np.int64)
        high = np.round(inside * self.rng.choice([1.0, 1.1, 2.0, 10.0], inside.shape)).astype(np.int64)
        roots = self.lattice.initial_boxes()
        parts = []
        for i in range(count):
            root = np.flatnonzero((roots.low <= inside[i]).all(1) & (inside[i] <= roots.high).all(1))[0]
            parts.append((np.maximum(low[i], roots.low[root]), np.minimum(high[i], roots.high[root])))
        boxes, left = self.lattice.propagate(Boxes(*map(np.array, zip(*parts, strict=True))))
        assert len(left) == count  # each holds its leaf
        assert (boxes.low <= inside).all() and (inside <= boxes.high).all()
        return boxes, which

    def variables(self, design):
        """The design's values by the names of atoms, what the model's roots come to among them."""
        names = [each.name for each in self.problem.variables]
        lower = {each.name: each.lower for each in self.problem.variables}
        exact = self.model.at(np.log([[design.get(name, lower[name]) for name in names]])).one(0)
        report = exact.report
        hottest = getattr(report, "training", report)
        return lower | design | {
            "junction_k": float(hottest.junction_temperature_k),
            "checkpoint_interval_s": float(getattr(hottest, "checkpoint_interval_s", 1.0)),
            "useful_tokens": self.useful_tokens(hottest),
        }, exact  # fmt: skip

    def useful_tokens(self, report) -> float:
        """What vanishing batches would need for the loss of a dense model: `(B / (L - E - A N^-a))^(1/b)`; 1 of a service."""
        law = getattr(self.problem.template.inputs[0], "law", None)
        if law is None:
            return 1.0
        from_tokens = float(report.loss) - float(loss_floor(law, report.parameters))
        return float((law.token_coefficient / from_tokens) ** (1.0 / law.token_exponent))


@pytest.fixture(scope="module", params=[*rotated(QUICK, 3), *LONG])
def case(request):
    return Case(request.param, 6)


def test_true_designs_break_no_row_of_their_boxes(case):
    """Every atom at its true value: the row of each definition, each constraint and the objective allow it."""
    boxes, which = case.boxes_around(12)
    checked = 0
    with jax.enable_x64(True):
        for i in range(len(boxes)):
            own, exact = case.variables(case.designs[which[i]])
            checked += rows_held(case.problem, case.lattice, boxes[i : i + 1], own, float(exact.objective))
    assert checked > 200


def test_no_leaf_is_below_the_bound_of_a_box_that_holds_it(case):
    boxes, which = case.boxes_around(40)
    with jax.enable_x64(True):
        lower = bound_nodes(case.programmes, boxes).lower
    assert (np.array(case.optima)[which] - lower).min() >= -1e-6


def test_no_neighbour_of_an_answer_is_better_than_proved(case):
    """Designs next to the answer, hardware optimised for each: feasible ones of the exact model are not below the bound."""
    points = case.near(case.best.point, 60)
    names = [each.name for each in case.problem.variables]
    lower = {each.name: each.lower for each in case.problem.variables}
    with jax.enable_x64(True):
        known = bound_nodes(case.programmes, Boxes.of_points(points), tolerance=SEARCH.tree.answer_gaps[0])
        programme, answers = known.programme, known.answers
        rows = []
        for y, point in zip(answers.y, points, strict=True):
            design = dict(zip(programme.names, np.exp(y), strict=True)) | case.lattice.design(point)
            rows.append([design.get(name, lower[name]) for name in names])
        exact = case.model.at(np.log(rows))
    better = (exact.violation <= FEASIBILITY_TOLERANCE) & (exact.objective < case.best.proved_bound - 1e-6)
    assert len(points) >= 20
    assert not better.any(), points[better]

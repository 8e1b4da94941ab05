"""A service on two kinds of chips: places of variables, the same chip twice, bounds, optima against every design, pairs ranked."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace

import jax
import numpy as np
import pytest

import hwopt
from hwopt.cli import main
from hwopt.design.design import kinds_of_chips
from hwopt.design.exact import ExactModel
from hwopt.design.lattices import lattice_of
from hwopt.errors import UserError
from hwopt.hardware.cluster import ClusterPair
from hwopt.integers.boxes import Boxes
from hwopt.model.chip.thermal import operating_point
from hwopt.model.report import FEASIBILITY_TOLERANCE
from hwopt.output.text.bill import bill
from hwopt.solver.options import SEARCH
from hwopt.solver.search.bounding import bound_nodes
from hwopt.solver.search.node_relaxations import NodeRelaxations
from hwopt.solver.solution import BranchOutcome, Outcome
from hwopt.trace.cache import evaluate_in_numpy
from objectives.serve_cost import ServeCost
from tests.rotation import one_in, rotated
from tests.unit.solver.rows import rows_held

SERVICE = ServeCost(split="disaggregated", free="nics+racks")
QUESTION = replace(SERVICE, decode_chip="h200")
CLOCKS = ("clock_ratio", "prefill_clock_ratio")
GOOD = {
    "clock_ratio": 0.76, "nics_per_server": 1, "chips_per_rack": 16, "prefill_clock_ratio": 0.84, "prefill_nics_per_server": 2,
    "prefill_chips_per_rack": 8, "tp": 1, "pp": 1, "batch": 94, "replicas": 16, "prefill_tp": 1, "prefill_pp": 2,
    "prefill_batch": 2, "prefill_replicas": 20,
}  # fmt: skip
"""A design that satisfies all limits."""


class Case:
    """A question, and designs of it near a good one."""

    def __init__(self, problem):
        self.problem, self.lattice = problem, lattice_of(problem)
        self.model = ExactModel(problem).prepare()
        self.rng = np.random.default_rng(3)

    def exact(self, points: np.ndarray, clocks: np.ndarray):
        """Designs at points, with the clocks of both kinds of chips (design, 2)."""
        known = self.lattice.quantities_at(self.lattice.columns(np.asarray(points, float)))
        known |= dict(zip(CLOCKS, np.transpose(clocks), strict=True))
        columns = [np.broadcast_to(known.get(each.name, each.lower), len(points)) for each in self.problem.variables]
        return self.model.at(np.log(np.stack(columns, axis=1)))

    def designs(self, count: int):
        """Points, clocks and exact designs that satisfy every limit."""
        drawn = {
            "batch": range(40, 97), "replicas": (16, 24, 32), "chips_per_rack": (8, 16), "nics_per_server": (1, 2, 4, 8),
            "prefill_nics_per_server": (1, 2, 3, 8), "prefill_pp": (1, 2, 4), "prefill_batch": (1, 2),
            "prefill_replicas": range(18, 64), "tp": (1, 2), "groups": (4, 8),
        }  # fmt: skip
        points = np.repeat(self.lattice.point(GOOD)[None], 60 * count, axis=0)
        for name, values in drawn.items():
            points[:, self.lattice.at[name]] = self.rng.choice(values, len(points))
        points = points[self.lattice.valid(points)]
        clocks = self.clocks(points)
        exact = self.exact(points, clocks)
        good = np.flatnonzero(exact.violation <= FEASIBILITY_TOLERANCE)[:count]
        assert len(good) == count
        return points[good], clocks[good], jax.tree.map(lambda leaf: leaf[good], exact)

    def clocks(self, points: np.ndarray) -> np.ndarray:
        """Random clocks (design, 2), in the pieces that points say where clocks are taken in pieces."""
        clocks = self.rng.uniform(0.7, 1.0, (len(points), 2))
        for piece in self.lattice.pieces:
            points[:, self.lattice.at[piece.name]] = piece.number(clocks[:, CLOCKS.index(piece.variable)])
        return clocks

    def boxes(self, points: np.ndarray) -> Boxes:
        """Boxes that hold points, of many widths; roots are points."""
        wide = ~np.isin(self.lattice.names, ["tp", "prefill_tp", "ep", "prefill_ep"])
        low = np.maximum(1, np.round(points * self.rng.choice([1.0, 0.9, 0.4], points.shape))).astype(int)
        high = np.round(points * self.rng.choice([1.0, 1.1, 3.0], points.shape)).astype(int)
        high = np.minimum(high, [each.ends[1] for each in self.lattice.coordinates])
        boxes, left = self.lattice.propagate(Boxes(np.where(wide, low, points), np.where(wide, high, points)))
        assert len(left) == len(points)  # each holds its point
        assert (boxes.low <= points).all() and (points <= boxes.high).all()
        return boxes


@pytest.fixture(scope="module")
def case():
    return Case(QUESTION.problem())


@one_in(2, 0)
def test_a_variable_is_set_in_its_own_machine_alone(case):
    template = case.problem.template
    for each in case.problem.variables:
        if each.category not in ("chip", "facility", "network"):
            continue
        group = "prefill_" if each.name.startswith("prefill_") else ""
        after = each.place.put(template, np.float64(3.0))
        assert float(each.place.get(after)) == pytest.approx(3.0)
        before, now = kinds_of_chips(template), kinds_of_chips(after)
        changed = {name for name in now if not _same(before[name].cluster, now[name].cluster)}
        assert changed == {group}, each.name


def _same(one, other) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


def test_the_same_chip_named_twice_is_one_kind_of_chips():
    one, twice = ServeCost(split="disaggregated"), ServeCost(split="disaggregated", decode_chip="h100-sxm")
    assert twice.problem().form == one.problem().form
    assert _same(twice.problem().template, one.problem().template)


@one_in(2, 1)
def test_two_groups_of_one_chip_are_what_one_kind_of_chips_is(case):
    """Objective and every constraint, where both groups have the same clock, NICs and racks and lie in several domains."""
    one = ServeCost(split="disaggregated", chip="h200").problem()
    pair = ClusterPair(prefill=one.template.cluster, decode=one.template.cluster)
    two = replace(case.problem, template=case.problem.template._replace(cluster=pair))
    alike = lambda name: GOOD[name.removeprefix("prefill_") if name.startswith("prefill_c") or "nics" in name else name]
    known = {"fullest_stage": 1.0, "last_stage": 1.0, "prefill_fullest_stage": 1.0, "prefill_last_stage": 1.0}
    at = lambda problem: np.log([[known.get(each.name) or alike(each.name) for each in problem.variables]])
    first, second = ExactModel(one).at(at(one)), ExactModel(two).at(at(two))
    np.testing.assert_allclose(second.objective, first.objective, rtol=0, atol=1e-12)
    np.testing.assert_allclose(second.constraints, first.constraints, rtol=0, atol=1e-9)


def test_true_designs_break_no_row_of_their_boxes(case):
    """Every atom at its true value, junctions of both kinds of chips among them: each row and the objective allow it."""
    points, clocks, exact = case.designs(8)
    boxes, checked = case.boxes(points), 0
    with jax.enable_x64(True):
        for i, (point, pair) in enumerate(zip(points, clocks, strict=True)):
            design = case.lattice.design(point) | dict(zip(CLOCKS, pair, strict=True))
            built = kinds_of_chips(exact.one(i).design)
            points_of = {
                g: evaluate_in_numpy(operating_point, d.cluster.chip, d.cluster.cooling) for g, d in built.items()
            }
            design |= {f"{group}junction_k": float(each.junction_k) for group, each in points_of.items()}
            assert len({round(each, 6) for name, each in design.items() if "junction" in name}) == 2
            design |= {"useful_tokens": 1e9, "checkpoint_interval_s": 1.0}  # of which a service has none
            checked += rows_held(case.problem, case.lattice, boxes[i : i + 1], design, float(exact.objective[i]))
    assert checked > 200


LIMITS = {"means": {}, "tails": {"ttft_budget_s": 10.0, "ttft_p99_limit_s": 3.0}}


@pytest.mark.parametrize("limits", rotated(LIMITS, 2))
def test_no_design_is_below_the_bound_of_a_box_that_holds_it(limits):
    case = Case(replace(QUESTION, **LIMITS[limits]).problem())
    points, _, exact = case.designs(40)
    with jax.enable_x64(True):
        lower = bound_nodes(NodeRelaxations(case.problem, case.lattice), case.boxes(points)).lower
    assert np.isfinite(lower).all()
    assert (lower <= exact.objective + 1e-6).all(), (lower - exact.objective).max()
    assert (lower > exact.objective - 0.5).sum() > 12  # bounds are near


TINY = {
    "nics_per_server": (1, 2), "prefill_nics_per_server": (1, 2), "chips_per_rack": (8, 16), "prefill_chips_per_rack": (8, 8),
    "clock_ratio": (0.8, 0.8), "prefill_clock_ratio": (0.9, 0.9), "tp": (1, 2), "pp": (1, 1), "batch": (92, 96),
    "replicas": (7, 16), "prefill_tp": (1, 1), "prefill_pp": (1, 2), "prefill_batch": (1, 2), "prefill_replicas": (32, 44),
}  # fmt: skip
"""Few integers, both clocks kept."""

PROMPTS, ANSWERS = ("h100-sxm", "h800"), ("h200", "h20")

BOUNDS = {name: tuple(map(float, ends)) for name, ends in TINY.items()}


def every_design(small: Case) -> np.ndarray:
    """Every integer design of a small lattice."""
    initial = small.lattice.initial_boxes()
    ends = [small.lattice.column(initial, name) for name in small.lattice.names]
    ranges = [range(int(low.min()), int(high.max()) + 1) for low, high in ends]
    points = np.array(list(itertools.product(*ranges)))
    return points[small.lattice.valid(points)]


@pytest.fixture(scope="module")
def alone():
    """The proved answers of pairs by themselves."""
    pairs = {(chip, "h200"): replace(QUESTION, chip=chip) for chip in PROMPTS}
    return {pair: hwopt.optimize(each, bounds=BOUNDS, explain=False) for pair, each in pairs.items()}


def test_the_optimum_of_a_small_lattice_is_that_of_every_design(alone):
    small = Case(QUESTION.problem().narrowed(BOUNDS))
    points = every_design(small)
    exact = small.exact(points, np.repeat([[0.8, 0.9]], len(points), axis=0))
    good = exact.violation <= FEASIBILITY_TOLERANCE
    best, proved = math.exp(exact.objective[good].min()), alone["h100-sxm", "h200"]
    assert len(points) > 1000 and 5 < good.sum() < len(good)
    assert proved.outcome is Outcome.proved
    assert proved.objective == pytest.approx(best, rel=1.01 * SEARCH.tree.gap)
    assert proved.certificate.lower_bound <= best * (1.0 + 1e-9)


def test_pairs_are_ranked_under_one_proof(alone):
    together = hwopt.optimize(SERVICE, choices={"chip": PROMPTS, "decode_chip": ANSWERS}, bounds=BOUNDS)
    best = min(alone, key=lambda pair: alone[pair].objective)
    assert together.outcome is Outcome.proved
    assert tuple(together.chosen.values()) == best
    assert {each.fate for each in together.choices} == {
        BranchOutcome.best,
        BranchOutcome.beaten,
        BranchOutcome.infeasible,
    }
    assert together.objective == pytest.approx(alone[best].objective, rel=2 * SEARCH.tree.gap)
    for each in together.choices:
        pair = tuple(value for _, value in each.chosen)
        if pair in alone:
            assert each.lower_bound <= alone[pair].objective * (1.0 + 1e-7)
        else:
            assert each.fate is BranchOutcome.infeasible  # too slow for these degrees


def test_parts_of_both_add_up_to_capital_and_power(alone):
    solution = alone["h100-sxm", "h200"]
    rows = bill(solution)
    assert {row.part.split(":")[0] for row in rows} == {"prefill", "decode"}
    assert sum(row.price for row in rows) == pytest.approx(float(solution.report.capex_usd), rel=1e-9)
    assert sum(row.power for row in rows) == pytest.approx(float(solution.report.peak_power_w), rel=1e-9)
    chips = {row.part: row for row in rows if row.part.endswith(": chips")}
    plan = solution.plan
    assert chips["prefill: chips"].count == float(plan.prefill.chips)
    assert chips["decode: chips"].count == float(plan.decode.chips)
    assert chips["prefill: chips"].source.startswith("h100-sxm") and chips["decode: chips"].source.startswith("h200")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"split": "colocated"}, "split = disaggregated"),
        ({"split": "colocated", "decode_chip": "h100-sxm"}, "split = disaggregated"),
        ({"decode_chip": "h20x"}, "did you mean 'h20'"),
        ({"decode_chip": "a100-80"}, "does not compute in fp8"),
        ({"free": "hbm"}, "remove free"),
        ({"design": "h100-sxm"}, "remove design"),
        ({"sites": 2.0}, "one site"),
        ({"export_rule": "october-2023", "chip": "h20"}, "'h200' has TPP"),
    ],
)
def test_what_two_kinds_of_chips_are_not_asked_with_is_refused(fields, words):
    with pytest.raises(UserError, match=words):
        replace(QUESTION, **fields).problem()


def test_software_of_two_makes_is_said_to_be_an_assumption():
    assert (
        "neuron-serving hands keys and values to tensorrt-llm" in replace(QUESTION, chip="trainium2").problem().question
    )
    assert "assumption" not in QUESTION.problem().question


def test_studies_over_continuous_hardware_refuse_them(case):
    with pytest.raises(UserError, match="not continuous hardware"):
        hwopt.optimize(QUESTION, regime="relaxed")
    with pytest.raises(UserError, match="two kinds of chips"):
        hwopt.confident(QUESTION, 0.9)
    with pytest.raises(UserError, match="two kinds of chips"):
        hwopt.confident(SERVICE, 0.9, choices={"decode_chip": ["h200", "h20"]})
    with pytest.raises(UserError, match="pairs are ranked"):
        hwopt.compare(QUESTION, ["h100-sxm", "h200"])


def test_two_chips_outside_an_export_rule_need_no_budget_for_it():
    """Each is outside by itself, perhaps by another paragraph: the greater figure of both is held to nothing."""
    problem = replace(QUESTION, chip="h20", decode_chip="h800", export_rule="october-2022").problem()
    assert {each.name for each in problem.budgets} == {"ttft_budget_s", "tpot_budget_s", "power_budget_w"}


ASK = ["optimize", "serve_cost", "--split", "disaggregated", "--decode-chip", "h200", "--free", "nics+racks", "--bounds",
       ",".join(f"{name}={low:g}:{high:g}" for name, (low, high) in BOUNDS.items())]  # fmt: skip


@pytest.mark.usefixtures("solved_once")
def test_the_command_says_what_each_kind_of_chips_is(capsys, alone):
    assert main([*ASK, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["objective"]["value"] == pytest.approx(alone["h100-sxm", "h200"].objective, rel=1e-9)
    assert answer["outcome"] == "proved" and answer["certificate"]["gap"] <= 1e-3
    assert answer["price_of_parts"] is None
    assert {"prefill", "decode"} == answer["plan"].keys() == answer["report"]["groups"].keys()
    low, high = answer["report"]["low"]["time_per_output_token_s"], answer["report"]["high"]["time_per_output_token_s"]
    assert low < answer["report"]["time_per_output_token_s"] < high
    assert main(ASK) == 0
    screen = " ".join(capsys.readouterr().out.split())
    assert "h100-sxm for prefill and h200 for decode" in screen
    assert "prefill: HBM stacks" in screen and "prefill on chips of another kind" in screen


@pytest.mark.usefixtures("solved_once")
def test_its_plan_is_exported_for_an_engine_of_two_groups_and_never_redesigned(capsys):
    assert main([*ASK, "--export", "dynamo-vllm", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["chip"], answer["decode_chip"]) == ("h100-sxm", "h200")
    assert main([*ASK, "--alternatives"]) == 2
    assert "one chip type" in capsys.readouterr().err
    assert main([*ASK, "--vary", "hbm=30%"]) == 2
    assert "leave out decode_chip" in capsys.readouterr().err

"""Export rules: figures of chips in closed form, the ways to stay outside, and questions that are held to them."""

from __future__ import annotations

import itertools
from functools import cache

import equinox as eqx
import jax
import numpy as np
import pytest

import hwopt
from hwopt import catalog
from hwopt.design.design import with_derived_parts
from hwopt.design.exact import ExactModel, logarithms
from hwopt.errors import UserError
from hwopt.hardware.export_rule import ExportRule, Threshold
from hwopt.model.chip import export_limits
from hwopt.solver.options import SEARCH
from hwopt.solver.search.solve_global import design_values
from hwopt.solver.solution import Outcome
from hwopt.types import PRECISION_BITS, PRECISIONS
from objectives.export_rules import figures_of
from tests.rotation import one_in

SUPPORTED = [name for name in catalog.names("chips") if "unsupported" not in catalog.record("chips", name).text]
SMALL = {
    "tp": 8, "cp": 1, "pp": 6, "virtual_stages": 7, "micro_batch": 1, "zero": 1, "recompute": 2, "weights_tier": 1,
    "optimizer_tier": 1, "activations_tier": 1, "nics_per_server": 1, "chips": 15840, "global_batch_sequences": 1980,
    "scale_up_domain": 16, "chips_per_rack": 16, "scale_up_lanes": 3, "hbm_stacks": 3, "dies": 2,
}  # fmt: skip
"""Many small chips beside one plan."""
LARGE = SMALL | {
    "tp": 2, "cp": 2, "activations_tier": 2, "chips": 2016, "global_batch_sequences": 2016, "scale_up_domain": 24,
    "chips_per_rack": 24, "scale_up_lanes": 5, "dies": 3,
}  # fmt: skip
"""Few large ones, whose activations leave the chips in a way that no software documents."""


def drawn(**fields):
    return hwopt.objective(
        "train_cost", design="h100-sxm", prices="at-cost", workload="llama3.1-70b", global_batch=2048.0, **fields
    )


def boxes(plan, **sizes):
    return {name: (value, value) for name, value in plan.items()} | sizes


@pytest.mark.parametrize(
    ("chip", "tpp", "area_mm2", "links", "host"),
    [
        ("h100-sxm", 1979 * 8, 814, 900, 128), ("h800", 1979 * 8, 814, 400, 128), ("a100-80", 312 * 16, 826, 600, 64),
        ("a800", 624 * 8, 826, 400, 64), ("h20", 148 * 16, 814, 900, 128), ("b200", 4500 * 8, 1600, 1800, 128),
        ("mi300x", 653.7 * 32, 920 + 1480, 896, 128),
    ],
)  # fmt: skip
def test_figures_of_chips(chip, tpp, area_mm2, links, host):
    """Data sheets: dense rates times bits, dies, links both ways; base dies count where there are any."""
    figures = figures_of(chip)
    assert figures["tpp"] == pytest.approx(tpp, rel=1e-12)
    assert figures["density"] == pytest.approx(tpp / area_mm2 * 1e6, rel=1e-12)
    assert figures["io"] == pytest.approx((links + host) * 1e9, rel=1e-12)


@pytest.mark.parametrize("name", SUPPORTED)
def test_formats_that_a_chip_has_decide(name):
    """A format without units runs in a wider one: its bits times the same rate are fewer."""
    entry = catalog.record("chips", name)
    native = ["bf16" if each == "fp16" else each for each in entry.words("native")]
    bits = dict(zip(PRECISIONS, PRECISION_BITS, strict=True))
    assert figures_of(name)["tpp"] == pytest.approx(
        max(entry.si(f"peak.{x}") / 1e12 * bits[x] for x in native), rel=1e-12
    )


def test_a_lower_clock_is_no_other_chip():
    """Of a chip that is sold; one that is drawn is made for its clock."""
    chip = catalog.chip("h100-sxm")
    slow = eqx.tree_at(lambda c: c.clock_ratio, chip, np.float64(0.5))
    assert float(export_limits.total_processing_performance(slow)) == float(
        export_limits.total_processing_performance(chip)
    )
    with jax.enable_x64(True):
        problem = drawn().problem()
        places = {each.name: each.place for each in problem.variables}
        built = [with_derived_parts(places["clock_hz"].put(problem.template, hz)) for hz in (1e9, 2e9)]
        one, two = (float(export_limits.total_processing_performance(each.cluster.chip)) for each in built)
    assert two == pytest.approx(2.0 * one, rel=1e-12)


def literally_caught(rule, tpp, density, io):
    """The rules as they are written, upper limits too."""
    if rule == "october-2022":
        return io >= 600e9 and tpp >= 4800
    d = density / 1e6
    a = tpp >= 4800 or (tpp >= 1600 and d >= 5.92)
    return a or (2400 <= tpp < 4800 and 1.6 <= d < 5.92) or (tpp >= 1600 and 3.2 <= d < 5.92)


@pytest.mark.parametrize("name", catalog.names("export_rules"))
def test_cases_are_what_the_rule_leaves(name):
    """On both sides of every threshold and far from all."""
    rule = catalog.export_rule(name)
    near = lambda *values: [x * side for x in values for side in (1.0 - 1e-9, 1.0)]
    grid = itertools.product(
        near(800, 1600, 2400, 4800, 9600), near(0.8e6, 1.6e6, 3.2e6, 5.92e6, 9e6), near(3e11, 6e11, 9e11)
    )
    for tpp, density, io in grid:
        figures = {"tpp": tpp, "density": density, "io": io}
        caught = literally_caught(name, tpp, density, io)
        assert bool(rule.caught_by(figures)) == caught, figures
        assert any(all(figures[k] < x.value for k, x in case.items()) for case in rule.cases.values()) != caught, (
            figures
        )
    assert all(each.limit < each.value for case in rule.cases.values() for each in case.values())


def test_cases_have_names():
    assert list(catalog.export_rule("october-2022").cases) == ["tpp-4800", "io-600"]
    assert list(catalog.export_rule("october-2023").cases) == [
        "tpp-1600",
        "tpp-2400-density-3.2",
        "tpp-4800-density-1.6",
    ]
    one = ExportRule("one", {"a1": {"tpp": Threshold(5.0, "5")}, "a2": {"tpp": Threshold(7.0, "7")}})
    assert list(one.cases) == ["tpp-5"]


@pytest.mark.parametrize(
    ("chip", "rule", "by"),
    [
        ("h100-sxm", "october-2022", ["a1"]), ("a800", "october-2022", []), ("h800", "october-2022", []),
        ("h800", "october-2023", ["a1", "a2"]), ("h20", "october-2023", []), ("a40", "october-2023", ["b2"]),
        ("tpu-v3", "october-2022", []), ("mi250x-gcd", "october-2023", ["b1", "b2"]),
    ],
)  # fmt: skip
def test_chips_as_sold(chip, rule, by):
    assert catalog.export_rule(rule).caught_by(figures_of(chip)) == by
    question = hwopt.objective("train_cost", chip=chip, export_rule=rule)
    if by:
        with pytest.raises(UserError, match=f"'{chip}' has TPP .* 3A090.{by[0]}"):
            question.problem()
    else:
        assert question.left_open() == {} and f"outside export rule {rule}" in question.problem().question


def test_a_chip_as_sold_keeps_the_limits_of_its_case():
    budgets = {
        each.name: each
        for each in hwopt.objective("train_cost", chip="h20", export_rule="october-2023").problem().budgets
    }
    assert budgets["tpp_budget"].limit == pytest.approx(2400, rel=2e-5) and budgets["tpp_budget"].limit < 2400
    assert budgets["performance_density_budget_per_m2"].metric.name == "performance_density_per_m2"
    own = hwopt.objective("train_cost", chip="h20", export_rule="october-2023", tpp_budget=2390.0).problem()
    assert {each.name: each.limit for each in own.budgets}["tpp_budget"] == 2390.0


def test_links_may_be_made_slower():
    """H100 with other links: the only way left of 2022's; no way of 2023's."""
    question = hwopt.objective("train_cost", chip="h100-sxm", free="links", export_rule="october-2022")
    assert [each.name for each in question.problem().budgets][-1] == "io_rate_budget_bytes_per_s"
    with pytest.raises(UserError, match="applies"):
        hwopt.objective("train_cost", chip="h100-sxm", free="links", export_rule="october-2023").problem()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"export_rule": "october-2021"}, "october-202"),
        ({"export_case": "tpp-1600"}, "needs a rule"),
        ({"export_rule": "october-2023", "export_case": "tpp-4800"}, "has no 'tpp-4800'"),
        (
            {"export_rule": "october-2023", "export_case": "tpp-1600", "chip": "h20"},
            "the rule does not apply, but by another",
        ),
        ({"export_rule": "october-2023", "design": "h100-sxm"}, "allows 3 sets of limits.*--choices"),
        ({"chip": "tpu-v5p", "io_rate_budget_bytes_per_s": 1e12}, "does not state 'host_bandwidth'"),
        ({"chip_volume": "1e6"}, "applies to a parametric chip only"),
        ({"chip_volume": "many", "design": "h100-sxm"}, "must be a number.*bought"),
        ({"chip_volume": "0", "design": "h100-sxm"}, "above zero.*bought"),
    ],
)
def test_refusals(fields, words):
    with pytest.raises(UserError, match=words):
        hwopt.objective("train_cost", **fields).problem()


def test_designs_are_points_of_one_case():
    with pytest.raises(UserError, match="one question's lattice"):
        hwopt.optimize(drawn(export_rule="october-2023"), designs=[np.zeros(3)])


def test_who_pays_for_the_design():
    """450 M$ over so many chips in each one's price, or once as capital."""
    with jax.enable_x64(True):
        at = lambda **fields: drawn(**fields).problem().template
        nre = float(at().project.process.nre_usd)
        price = lambda design: float(with_derived_parts(design).cluster.prices.chip_base_usd)
        usual, million, once = at(), at(chip_volume="1e6"), at(chip_volume="bought")
        assert price(usual) - price(million) == pytest.approx(nre / 2e5 - nre / 1e6, rel=1e-9)
        assert price(usual) - price(once) == pytest.approx(nre / 2e5, rel=1e-9)
    assert float(once.cluster.prices.redesign_usd) == nre == 449e6
    assert float(usual.cluster.prices.redesign_usd) == 0.0


@cache
def held():
    """The best of a few sizes outside 2023's rule, by density."""
    sizes = {"compute_area_m2": (3.75e-4, 3.86e-4), "sram_bytes": (2.95e8, 3.1e8), "enabled_fraction": (0.7, 0.72)}
    question = drawn(export_rule="october-2023", export_case="tpp-2400-density-3.2")
    return hwopt.optimize(question, bounds=boxes(SMALL, **sizes), explain=False)


def test_a_drawn_chip_stays_outside():
    solution = held()
    report = solution.report
    assert solution.outcome is Outcome.proved and solution.certificate.gap < 1e-3
    figures = {"tpp": float(report.total_processing_performance), "density": float(report.performance_density_per_m2)}
    figures["io"] = float(report.io_rate_bytes_per_s)
    assert catalog.export_rule("october-2023").caught_by(figures) == []
    assert figures["tpp"] > 0.999 * 2400 and 3.1e6 < figures["density"] < 3.2e6
    values = design_values(solution)
    assert figures["io"] == pytest.approx(2 * (3 * 25e9 + 50e9 / 8), rel=1e-9)  # three lanes, an eighth of a NIC
    assert solution.objective == pytest.approx(19.2e6, rel=0.05)  # roughly: each fit of the constants moves it
    assert values["sram_bytes"] > 2.8e8  # silicon that computes nothing


@one_in(4, 2)
def test_no_legal_design_at_random_is_below_the_bound():
    solution, rng, count = held(), np.random.default_rng(5), 4000
    problem = solution.problem
    rows = np.tile(logarithms([design_values(solution)[each.name] for each in problem.variables]), (count, 1))
    places = {each.name: i for i, each in enumerate(problem.variables)}
    for name, low, high in (
        ("compute_area_m2", 3.6e-4, 3.9e-4),
        ("sram_bytes", 2.8e8, 3.3e8),
        ("clock_hz", 5e8, 5.2e8),
    ):
        rows[:, places[name]] = np.log(rng.uniform(low, high, count))
    rows[:, places["enabled_fraction"]] = np.log(rng.integers(101, 104, count) / 144)
    with jax.enable_x64(True):
        found = ExactModel(problem).at(rows)
    holds = found.violation <= 1e-6
    assert holds.sum() > 20
    assert np.exp(found.objective[holds].min()) >= solution.certificate.lower_bound


@pytest.mark.search
def test_the_best_case_is_found():
    """2022's rule costs few large chips nothing: their links are slow anyway."""
    sizes = {"compute_area_m2": (1.06e-3, 1.12e-3), "sram_bytes": (19e6, 23e6), "enabled_fraction": (0.98, 0.99)}
    answer = lambda **case: hwopt.optimize(
        drawn(export_rule="october-2022", any_software=True, **case), bounds=boxes(LARGE, **sizes), explain=False
    )
    solution = answer()
    assert solution.outcome is Outcome.proved and solution.chosen == {"export_case": "io-600"}
    assert {dict(each.chosen)["export_case"] for each in solution.choices} == {"tpp-4800", "io-600"}
    assert answer(export_case="tpp-4800").outcome is Outcome.infeasible
    assert solution.objective == pytest.approx(answer(export_case="io-600").objective, rel=SEARCH.tree.gap)
    assert solution.objective == pytest.approx(3.55e6, rel=0.05)  # roughly: each fit of the constants moves it

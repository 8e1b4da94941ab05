"""Options of a search: each field is documented, refuses values outside its range, and reaches the place that it steers."""

from __future__ import annotations

import ast
import inspect
import math
import textwrap
from dataclasses import fields, is_dataclass, replace

import jax
import numpy as np
import pytest

import hwopt
from hwopt.calibration.fit.options import FitOptions
from hwopt.design.exact import ExactModel
from hwopt.design.lattices import lattice_of
from hwopt.errors import UserError
from hwopt.solver import options as module
from hwopt.solver.interior_point.batch import solve
from hwopt.solver.interior_point.newton import RUNNING
from hwopt.solver.options import SEARCH, SearchOptions
from hwopt.solver.search.branch_and_bound import final_heuristic, initial_population, search
from hwopt.solver.search.node_relaxations import NodeRelaxations
from hwopt.solver.search.search_tree import SearchResult
from tests.tiers import ROOT
from tests.toy import ToyCost
from tests.unit.gp.test_interior_point import programmes

NAMED = [getattr(module, name) for name in module.__all__]
CLASSES = [FitOptions, *(each for each in NAMED if is_dataclass(each) and isinstance(each, type))]


def numbers_of(kind: type):
    """Fields of a class that are numbers or tuples of numbers."""
    return [each for each in fields(kind) if each.metadata]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda each: each.__name__)
def test_every_field_is_documented(kind):
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0].body
    assert isinstance(body[0], ast.Expr), "the class has a docstring"
    for at, node in enumerate(body):
        if isinstance(node, ast.AnnAssign):
            said = body[at + 1]
            assert isinstance(said, ast.Expr) and isinstance(said.value.value, str), ast.unparse(node.target)
            assert len(said.value.value) > 15 and said.value.value.rstrip().endswith(".")


@pytest.mark.parametrize("kind", CLASSES, ids=lambda each: each.__name__)
def test_every_number_has_a_range_and_refuses_what_lies_outside(kind):
    assert hash(kind()) == hash(kind()) and kind() == kind()
    for each in numbers_of(kind):
        one = isinstance(each.default, tuple)
        wrap = (lambda value: (value,)) if one else (lambda value: value)
        least, most = each.metadata["least"], each.metadata["most"]
        assert math.isfinite(least) and math.isfinite(most) and least < most
        for wrong in (math.nan, math.inf, -math.inf, least - 1.0, 2.0 * most + 1.0, "1", None, True):
            with pytest.raises(UserError) as refused:
                kind(**{each.name: wrap(wrong)})
            assert f"{kind.__name__}: {each.name}" in str(refused.value) and "\n" not in str(refused.value)
        if one:
            for wrong in ((), "12", 3.0):
                with pytest.raises(UserError, match=f"{each.name} must be a non-empty list of numbers"):
                    kind(**{each.name: wrong})
            assert getattr(kind(**{each.name: list(each.default)}), each.name) == each.default
        elif isinstance(each.default, int):
            with pytest.raises(UserError, match="an integer"):
                kind(**{each.name: least + 0.5})
            assert isinstance(getattr(kind(**{each.name: float(each.default)}), each.name), int)


def test_the_page_of_decisions_has_every_field_with_its_default():
    page = (ROOT / "notebooks" / "guide" / "decisions" / "search-options.md").read_text(encoding="utf-8")
    shown = lambda value: ", ".join(map(shown, value)) if isinstance(value, tuple) else said(value)
    said = lambda value: f"{value:,}" if isinstance(value, int) else f"{value:.6g}"
    for kind in CLASSES:
        for each in numbers_of(kind):
            section = page.split(f"### {kind.__name__}\n")[1].split("\n#")[0]
            assert f"| `{each.name}` | {shown(each.default)} |" in section, f"{kind.__name__}.{each.name}"


def test_every_field_is_read_somewhere():
    """An option that nothing reads would be set in vain."""
    places = [ROOT / "hwopt" / room for room in ("solver", "planning", "analysis", "sweeps", "calibration")]
    files = [path for place in places for path in place.rglob("*.py") if path.name != "options.py"]
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in files)
    read = {node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert {each.name for kind in CLASSES for each in fields(kind)} <= read


def test_parts_of_options_and_options_of_calls_are_of_their_class():
    with pytest.raises(UserError, match="tree must be a TreeOptions, not HeuristicOptions"):
        SearchOptions(tree=hwopt.HeuristicOptions())  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match=r"optimize: options must be hwopt.SearchOptions\(...\), not TreeOptions"):
        hwopt.optimize(ToyCost(), options=hwopt.TreeOptions())  # pyright: ignore[reportArgumentType, reportCallIssue]
    with pytest.raises(UserError, match="elite <= level_points <= round_points"):
        hwopt.SweepOptions(elite=1024)


def test_all_parts_and_classes_are_public():
    parts = {type(getattr(SEARCH, each.name)).__name__ for each in fields(SearchOptions)}
    assert parts | {"SearchOptions", "AcceleratorOptions", "FitOptions"} == {each.__name__ for each in CLASSES}
    assert all(getattr(hwopt, each.__name__) is each for each in CLASSES)


def test_the_interior_point_steps_as_its_options_say():
    structure, numbers, _ = programmes(3)
    usual = solve(structure, numbers)
    one = solve(structure, numbers, options=hwopt.InteriorPointOptions(iterations=1))
    assert one.iterations.max() == 1 < usual.iterations.max()
    for changed in (
        {"boundary": 0.5}, {"least_step": 1.0}, {"step_shrink": 0.05}, {"centering_floor": 1.0},
        {"damping": 1e-3}, {"step_ratio": 1.0},
    ):  # fmt: skip
        other = solve(structure, numbers, options=hwopt.InteriorPointOptions(**changed))
        assert not np.array_equal(other.y, usual.y), changed
    edge = dict(start=numbers.upper)
    moved = solve(structure, numbers, **edge, options=hwopt.InteriorPointOptions(start_margin=0.4))
    assert not np.array_equal(moved.y, solve(structure, numbers, **edge).y)
    rough = solve(structure, numbers, loose=1e-2)
    double = solve(structure, numbers, loose=1e-2, options=hwopt.InteriorPointOptions(single_precision_iterations=0))
    assert not np.array_equal(rough.y, double.y)
    few = solve(structure, numbers, options=hwopt.InteriorPointOptions(slots=3, refill=1))
    np.testing.assert_allclose(few.objective, usual.objective, atol=1e-7)


def test_other_options_are_another_program_of_the_accelerator():
    structure, numbers, _ = programmes(3)
    device, shorter = jax.devices("cpu")[0], hwopt.InteriorPointOptions(boundary=0.5)
    slow, usual = (solve(structure, numbers, device=device, options=each) for each in (shorter, SEARCH.interior_point))
    assert not np.array_equal(slow.iterations, usual.iterations)
    here = solve(structure, numbers, options=shorter)
    np.testing.assert_array_equal(here.iterations, slow.iterations)
    assert RUNNING not in here.status


@pytest.fixture(scope="module")
def question():
    problem = ToyCost().problem()
    return problem, lattice_of(problem), ExactModel(problem)


def found(question, **changed) -> SearchResult:
    """The outcome of a search of the toy. **Arguments:** options of parts by their names."""
    problem, lattice, model = question
    parts = {name: replace(getattr(SEARCH, name), **each) for name, each in changed.items()}
    with jax.enable_x64(True):
        return search(NodeRelaxations(problem, lattice, options=SearchOptions(**parts)), exact=[model])


def test_the_tree_grows_as_its_options_say(question):
    usual = found(question)
    assert usual.complete and math.expm1(usual.gap) <= SEARCH.tree.gap * 1.01
    assert not found(question, tree={"nodes": 1}).complete
    assert found(question, tree={"gap": 0.5}).boxes <= usual.boxes
    assert found(question, tree={"first_nodes": 1}).boxes < usual.boxes
    narrow = {"first_nodes": 1, "gap": 1e-9}
    assert found(question, tree=narrow | {"nodes_per_round": 1}).rounds >= found(question, tree=narrow).rounds
    for same in (
        {"tree": {"parts": 3}}, {"tree": {"pseudo_cost_weight": 1.0}}, {"replay": {"recordings": 0}},
        {"tree": {"loose_gap": 0.0}},
    ):  # fmt: skip
        other = found(question, **same)
        assert other.complete and other.value == pytest.approx(usual.value, abs=2e-4), same


def test_the_heuristic_runs_as_its_options_say(question):
    problem, lattice, _ = question
    with jax.enable_x64(True):
        made = lambda **changed: NodeRelaxations(
            problem, lattice, options=SearchOptions(heuristic=hwopt.HeuristicOptions(**changed))
        )
        assert final_heuristic(made(seeds=1), SearchResult()).point is not None
        assert (
            final_heuristic(made(seeds=1, last_generations=0), SearchResult()).value
            >= final_heuristic(made(), SearchResult()).value
        )
        assert len(initial_population(made(population=7)).points) <= 7 < len(initial_population(made()).points)
        assert initial_population(made(generations=3, patience=100)).run().generations == 3
        usual = initial_population(made()).run(3)
        assert initial_population(made(penalty=9.0)).weight == 9.0 == 3.0 * SEARCH.heuristic.penalty
        for changed in (
            {"children": 50}, {"mutation_chance": 0.0}, {"crossover_share": 1.0}, {"trade_share": 1.0}, {"rank_power": 5.0},
            {"difference_share": 0.0}, {"difference_powers": (2.0,)}, {"size_spreads": (1.0,)}, {"integer_spreads": (2.0,)},
        ):  # fmt: skip
            other = initial_population(made(**changed)).run(3)
            same = other.points.shape == usual.points.shape and np.array_equal(other.sizes, usual.sizes)
            assert not same or changed.keys() <= {"integer_spreads"}, changed


def test_a_fit_ends_as_its_options_say():
    with pytest.raises(UserError, match=r"calibrate: options must be hwopt.FitOptions\(...\), not SearchOptions"):
        hwopt.calibrate("runs.csv", options=SEARCH)  # pyright: ignore[reportArgumentType]


def test_public_calls_pass_options_on():
    few = SearchOptions(tree=hwopt.TreeOptions(nodes=1), heuristic=hwopt.HeuristicOptions(generations=0))
    usual, short = hwopt.optimize(ToyCost(), explain=False), hwopt.optimize(ToyCost(), explain=False, options=few)
    assert usual.outcome.name == "proved" and short.outcome.name == "best_found"
    assert usual.certificate.stopped is None and short.certificate.stopped == "node limit"
    assert "raise SearchOptions.tree.nodes" in short.headline and "limit" not in usual.headline
    grid = {"power_budget_w": [4e7]}
    certified = [int(hwopt.frontier(ToyCost(), grid, options=each)["certified"][0]) for each in (None, few)]
    assert certified == [1, 0]
    assert hwopt.compare(ToyCost(), ["h100-sxm"], options=few)[0].solution.outcome.name == "best_found"
    assert hwopt.walls(ToyCost(), options=few).start.outcome.name == "best_found"
    assert hwopt.invest(ToyCost(), top=0, options=few).start.outcome.name == "best_found"

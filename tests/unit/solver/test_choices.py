"""One proof over all choices: the best of the branches solved alone, bounds of each, what cannot be asked."""

import dataclasses
import math

import jax
import numpy as np
import pytest

import hwopt
from hwopt.design.lattices import lattice_of
from hwopt.errors import UserError
from hwopt.solver.deadline import Deadline
from hwopt.solver.options import SEARCH
from hwopt.solver.search.bounding import bound_nodes
from hwopt.solver.search.categorical import certified_choice, choice_states, grouped_choices
from hwopt.solver.search.node_relaxations import CHOICE, NodeRelaxations
from hwopt.solver.solution import Branch, BranchOutcome, Outcome
from tests.rotation import one_in, shared_out

QUESTION = hwopt.objective(
    "train_cost", workload="llama3.1-8b", tokens=1e12, global_batch=512.0, power_budget_w=5e6, capex_budget_usd=2e8,
    time_budget_s=20 * 86400.0,
)  # fmt: skip
BOXES = {
    "tp": (1.0, 4.0), "cp": (1.0, 1.0), "zero": (1.0, 1.0), "pp": (1.0, 1.0), "virtual_stages": (1.0, 1.0),
    "micro_batch": (1.0, 1.0),
}  # fmt: skip
CHIPS, COOLINGS = ("h100-sxm", shared_out(("tpu-v4", "h200"), 2)[0]), ("air", "direct-liquid")
"""Of one lattice at each second commit, of two at the others."""


@pytest.fixture(scope="module", params=[COOLINGS[:1], pytest.param(COOLINGS, marks=pytest.mark.search)], ids="+".join)
def coolings(request):
    return request.param


@pytest.fixture(scope="module")
def together(coolings):
    return hwopt.optimize(QUESTION, choices={"chip": CHIPS, "cooling": coolings}, bounds=BOXES)


@pytest.fixture(scope="module")
def alone(coolings):
    asked = {(c, k): dataclasses.replace(QUESTION, chip=c, cooling=k) for c in CHIPS for k in coolings}
    return {name: hwopt.optimize(each, bounds=BOXES, explain=False) for name, each in asked.items()}


def test_it_is_the_best_of_all_branches_solved_alone(together, alone):
    best = min(alone, key=lambda name: alone[name].objective if alone[name].feasible else math.inf)
    assert together.outcome is Outcome.proved
    assert together.chosen == dict(zip(("chip", "cooling"), best, strict=True))
    np.testing.assert_allclose(together.objective, alone[best].objective, rtol=2 * SEARCH.tree.gap)
    assert together.certificate.gap <= 1.01 * SEARCH.tree.gap


def test_the_bound_of_each_branch_holds(together, alone):
    fates = {tuple(value for _, value in each.chosen): each for each in together.choices}
    assert fates.keys() == alone.keys()
    for name, solution in alone.items():
        each = fates[name]
        if each.fate is BranchOutcome.infeasible:
            assert not solution.feasible
        elif solution.feasible:
            assert each.lower_bound <= solution.objective * (1.0 + 1e-7)
            assert each.objective is None or each.objective >= solution.certificate.lower_bound * (1.0 - 1e-7)
    assert together.certificate.lower_bound <= min(each.objective for each in alone.values() if each.feasible)


@one_in(4, 0)
def test_the_order_of_choices_changes_no_answer(together, coolings):
    turned = hwopt.optimize(QUESTION, choices={"cooling": coolings[::-1], "chip": CHIPS[::-1]}, bounds=BOXES)
    assert turned.chosen == together.chosen
    np.testing.assert_allclose(turned.objective, together.objective, rtol=2 * SEARCH.tree.gap)


def test_machines_of_one_lattice_have_the_programmes_that_they_have_alone():
    """Boxes of several machines in one batch are bounded as each machine's own are."""
    wider = BOXES | {"pp": (1.0, 2.0), "micro_batch": (1.0, 2.0)}  # narrower ones do not split by the choice
    asked = choice_states(QUESTION, {"chip": ("h100-sxm", "h200"), "cooling": COOLINGS}, bounds=wider)
    problems = dict(enumerate(each.question for each in asked))
    (group,) = grouped_choices(problems)
    with jax.enable_x64(True):
        lattice = group.programmes.lattice
        boxes = lattice.initial_boxes()
        for _ in range(4):
            width = np.log(boxes.high / np.maximum(boxes.low, 1))
            boxes = lattice.split(boxes, width.argmax(axis=1))[0]
        lower = bound_nodes(group.programmes, boxes).lower
        for number, problem in problems.items():
            own = boxes.low[:, lattice.at[CHOICE]] == number + 1
            keep = [column for name, column in lattice.at.items() if name != CHOICE]
            apart = type(boxes)(boxes.low[own][:, keep], boxes.high[own][:, keep])
            expected = bound_nodes(NodeRelaxations(problem, lattice_of(problem)), apart).lower
            np.testing.assert_array_equal(np.isinf(lower[own]), np.isinf(expected))
            finite = np.isfinite(expected)
            np.testing.assert_allclose(lower[own][finite], expected[finite], atol=1e-6)


def test_machines_whose_exponents_differ_are_bounded_apart():
    """A 72-chip domain sums over other levels of switches than a board of eight, and each slice of a torus is a domain."""
    asked = choice_states(QUESTION, {"chip": ("h100-sxm", "gb200", "tpu-v5p")}, bounds=BOXES)
    groups = grouped_choices(dict(enumerate(each.question for each in asked)))
    assert sorted(member for group in groups for member in group.members) == [*range(len(asked))]
    assert len(groups) == len(asked) > 3


def test_where_no_combination_holds_the_budgets_it_is_proved():
    poor = dataclasses.replace(QUESTION, capex_budget_usd=1e6)
    answer = hwopt.optimize(poor, choices={"chip": ("h100-sxm", "h200")}, bounds=BOXES, explain=False)
    assert answer.outcome is Outcome.infeasible and not answer.chosen
    assert {each.fate for each in answer.choices} == {BranchOutcome.infeasible}


@one_in(3, 0)
def test_what_the_catalogue_has_but_cannot_be_asked_is_said():
    answer = hwopt.optimize(
        dataclasses.replace(QUESTION, precision="fp8"), choices={"chip": ["*"]}, bounds=BOXES, seconds=1e-3
    )
    refused = [each for each in answer.choices if each.fate is BranchOutcome.refused]
    assert (
        refused
        and all(each.refused for each in refused)
        and any("does not compute in fp8" in each.refused for each in refused)
    )
    assert {dict(each.chosen)["chip"] for each in answer.choices} == {*hwopt.catalog.names("chips")}


@one_in(3, 2)
def test_an_answer_by_a_deadline_is_honest():
    asked = choice_states(QUESTION, {"chip": CHIPS, "cooling": COOLINGS}, bounds=BOXES)
    answer = certified_choice(asked, deadline=Deadline(0.0))
    assert answer.outcome is Outcome.best_found and answer.certificate.gap is None
    assert "all bounded" not in answer.certificate.scope
    assert [each.fate for each in answer.choices].count(BranchOutcome.best) == 1
    assert all(each.fate in (BranchOutcome.open, BranchOutcome.best) for each in answer.choices)


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"chip": ["h100-sxm", "h1000"]}, "h1000"),
        ({"cheep": ["a"]}, "not a field"),
        ({"power_budget_w": ["a"]}, "is a number"),
        ({"chip": ["h200", "h200"]}, "each value once"),
        ({"precision": ["*"]}, "no list"),
        ({"cooling": []}, "each value once"),
        ({"chip": ["*"], "cooling": ["*"], "fabric": ["*"]}, "combinations"),
    ],
)
def test_what_cannot_be_meant_is_refused(choices, words):
    with pytest.raises(UserError, match=words):
        hwopt.optimize(QUESTION, choices=choices)


@one_in(3, 1)
def test_what_is_shown_is_never_a_choice_that_cannot_be_asked():
    """After a stop without a design, a last look may satisfy all budgets; its choice must be a valid question."""
    asked = choice_states(
        dataclasses.replace(QUESTION, power_budget_w=1e12, capex_budget_usd=1e15, time_budget_s=1e12), {"chip": CHIPS}
    )
    answer = certified_choice(
        [Branch((("chip", "none"),), BranchOutcome.refused, refused="no such chip"), *asked], deadline=Deadline(0.0)
    )
    assert answer.feasible and answer.chosen["chip"] in CHIPS
    assert answer.choices[-1].fate is BranchOutcome.refused


def test_choices_are_proved_or_not_asked():
    with pytest.raises(UserError, match="one question's lattice"):
        hwopt.optimize(QUESTION, choices={"chip": CHIPS}, designs=[np.ones(3)])
    with pytest.raises(UserError, match="local"):
        hwopt.optimize(QUESTION, choices={"chip": CHIPS}, regime="local")
    with pytest.raises(UserError, match="applies to a parametric chip only"):
        choice_states(dataclasses.replace(QUESTION, technology="3nm"), {"chip": CHIPS})


def test_software_is_the_chips_own():
    first, *slices = choice_states(QUESTION, {"chip": ("h100-sxm", "tpu-v5p")})
    assert isinstance(first, Branch) and slices
    stacks = [each.question.provenance.records["stack"].slug for each in (first, *slices)]
    assert stacks == ["nemo-2024", *["jax-maxtext-tpu"] * len(slices)]
    serving = hwopt.objective("serve_cost", precision="bf16")
    of = lambda chip: dataclasses.replace(serving, chip=chip).problem().provenance.records["stack"].slug
    assert of("h100-sxm") != of("tpu-v5e")


def test_a_search_that_stops_before_its_first_bound_rules_out_no_choice():
    from types import SimpleNamespace

    from hwopt.solver.search.categorical import ChoiceGroup, _fate
    from hwopt.solver.search.search_tree import MachineState, SearchResult

    started = SearchResult(
        machines={1: MachineState(value=1.0)}
    )  # a design that a search starts with, and no bound yet
    group = ChoiceGroup((0, 1), SimpleNamespace(machines=(None, None)), started)  # pyright: ignore[reportArgumentType]
    asked = Branch((("cooling", "air"),), "air")
    assert [_fate(asked, each, False).fate for each in group.machines] == [BranchOutcome.open] * 2

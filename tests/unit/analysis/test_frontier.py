"""Frontiers: certified optima over budgets that hang together, are priced, and survive being killed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
import xarray

import hwopt
from hwopt.analysis import frontier as room
from hwopt.errors import UserError
from hwopt.sweeps import opened
from hwopt.sweeps.store import Store
from tests.answers import content

BOUNDS = {
    "tp": (8, 16), "pp": (4, 6), "virtual_stages": (1, 2), "micro_batch": (1, 1), "chips": (24000, 24800),
    "scale_up_domain": (32, 32), "chips_per_rack": (24, 24), "global_batch_sequences": (2000, 2100),
    "cp": (1, 1), "zero": (1, 1),
}  # fmt: skip
BUDGETS = {"power_budget_w": [34.9e6, 45.5e6, 34.0e6, 35.2e6, 27e6, 37e6], "capex_budget_usd": [1.3e9, 2e9]}


def question(**fields):
    alike = {"recompute": "none", "offload": "none"}
    return replace(hwopt.objective("train_cost"), **{"time_budget_s": 95 * 86400.0, **alike, **fields})


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def once(known):
    """A search from the same designs is done once. **Arguments:** `known`: answers by what was asked."""

    def remembered(problem, **how):
        key = content((problem, how))
        if key not in known:
            known[key] = hwopt.optimize(problem, **how)
        return known[key]

    return remembered


ANSWERS = {}
"""Of the searches of `whole`."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A frontier on disk, made in one go, and how many searches that took."""
    folder, searches = tmp_path_factory.mktemp("frontier") / "whole", []
    search = once(ANSWERS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "optimize", lambda *a, **k: searches.append(a) or search(*a, **k))
        dataset = hwopt.frontier(question(), BUDGETS, out=folder, bounds=BOUNDS)
    return dataset.load(), folder, len(searches)


def test_optima_hang_together(whole):
    dataset, _, searches = whole
    assert dict(dataset.sizes) == {"power_budget_w": 6, "capex_budget_usd": 2}
    assert (np.diff(dataset.power_budget_w) > 0).all()
    goal, bound = dataset.run_cost_usd.values, dataset.lower_bound.values
    for axis in (0, 1):
        assert not (np.diff(goal, axis=axis) > 0).any()
        assert not (np.diff(bound, axis=axis) > 0).any()
        assert not (np.diff(dataset.feasible.values, axis=axis) < 0).any()
    held = dataset.feasible.values == 1
    assert 0 < held.sum() < held.size
    assert searches < held.size  # what follows from looser points is not searched
    assert (dataset.certified == 1).all()
    assert (np.isfinite(goal) == held).all() and (np.isfinite(dataset.tp.values) == held).all()
    assert (bound[held] <= goal[held]).all() and (dataset.gap.values[held] <= 1e-4).all()
    for name, limit in (("power_budget_w", dataset.power_budget_w), ("capex_budget_usd", dataset.capex_budget_usd)):
        assert (dataset[f"used_{name}"] / limit).max() <= 1 + 1e-6
    np.testing.assert_array_equal(dataset.used_power_budget_w, dataset.peak_power_w)


def test_a_point_is_what_optimize_says(whole):
    at = whole[0].isel(power_budget_w=2, capex_budget_usd=0)
    asked = question(power_budget_w=float(at.power_budget_w), capex_budget_usd=float(at.capex_budget_usd))
    solution = hwopt.optimize(asked.problem().continuous, bounds=BOUNDS)
    assert float(at.run_cost_usd) == pytest.approx(solution.objective, rel=1e-4)
    assert float(at.lower_bound) <= solution.objective


def test_nothing_holds_the_tightest(whole):
    corner = whole[0].isel(power_budget_w=0)
    assert (corner.feasible == 0).all() and (corner.certified == 1).all()
    asked = question(power_budget_w=27e6, capex_budget_usd=2e9)
    solution = hwopt.optimize(asked.problem().continuous, bounds=BOUNDS, explain=False)
    assert not solution.feasible
    assert solution.certificate.scope.startswith("infeasible, proved, over")
    assert solution.headline.startswith("Infeasible: ") and solution.infeasibility


def test_prices_are_slopes(whole):
    """Logarithms of optima are convex in logarithms of budgets while the plan stays, so that slopes lie between two prices."""
    at = whole[0].isel(capex_budget_usd=1).sel(power_budget_w=[34.9e6, 35.2e6])
    assert all(
        len(set(at[name].values)) == 1 for name in ("chips", "tp", "pp", "virtual_stages", "global_batch_sequences")
    )
    elasticity = (at.shadow_price_power_budget_w * at.power_budget_w / at.run_cost_usd).values
    slope = float(-np.diff(np.log(at.run_cost_usd))[0] / np.diff(np.log(at.power_budget_w))[0])
    print(elasticity, slope)
    assert elasticity[1] > 0.01
    assert elasticity[1] * (1 - 1e-4) <= slope <= elasticity[0] * (1 + 1e-4)
    assert slope == pytest.approx(elasticity.mean(), rel=0.05)
    assert at.shadow_price_power_budget_w.attrs["units"] == "USD/W"


def test_names_and_units(whole):
    dataset = whole[0]
    assert dataset.attrs["title"] == "train_cost" and dataset.attrs["objective"] == "run_cost_usd"
    for name in dataset.variables:
        assert dataset[name].attrs["units"] and dataset[name].attrs["long_name"]
        assert dataset[name].dtype == (np.int8 if name in ("feasible", "certified") else np.float64)
    assert "fullest_stage" not in dataset


class Killed(Exception):
    pass


@pytest.mark.parametrize("again", ["told", pytest.param("searched", marks=pytest.mark.search)])
def test_an_interrupted_frontier_ends_the_same(whole, tmp_path, monkeypatch, again):
    """By the answers of the one that was not interrupted, or by searches of its own."""
    dataset, folder, _ = whole
    if again == "told":
        monkeypatch.setattr(room, "optimize", once(ANSWERS))
    out = tmp_path / "killed"

    def kill_at(count):
        def tell(progress):
            if progress.done == count:
                raise Killed

        return tell

    for count in (2, 3):  # of those that are left
        with pytest.raises(Killed):
            hwopt.frontier(question(), BUDGETS, out=out, bounds=BOUNDS, progress=kill_at(count))
    with pytest.raises(UserError, match="unfinished"):
        opened(out)
    store = Store.opened(out)
    done = int(store.done().sum())
    assert done == 5
    (out / "blocks" / "done" / "c" / "4").unlink()  # killed before the last flag
    seen = []
    again = hwopt.frontier(question(), BUDGETS, out=out, bounds=BOUNDS, progress=seen.append)
    assert seen[0].total == 12 - 4
    assert contents(out) == contents(folder)
    xarray.testing.assert_identical(again.load(), dataset)


def test_a_finished_frontier_is_not_made_again(whole, monkeypatch):
    dataset, folder, _ = whole
    monkeypatch.setattr(room, "_solve", None)
    again = hwopt.frontier(question(), BUDGETS, out=folder, bounds=BOUNDS)
    xarray.testing.assert_identical(again.load(), dataset)


def test_another_question_is_refused(whole, tmp_path):
    folder = whole[1]
    before = contents(folder)
    with pytest.raises(UserError, match=r"holds another sweep \(it differs in budgets\): choose another --out"):
        hwopt.frontier(question(), BUDGETS | {"capex_budget_usd": [1e9, 2e9]}, out=folder, bounds=BOUNDS)
    with pytest.raises(UserError, match=r"differs in fields, question\)"):
        hwopt.frontier(question(time_budget_s=5e6), BUDGETS, out=folder, bounds=BOUNDS)
    assert contents(folder) == before
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="something else than a sweep"):
        hwopt.frontier(question(), BUDGETS, out=tmp_path, bounds=BOUNDS)
    with pytest.raises(UserError, match="is a file"):
        hwopt.frontier(question(), BUDGETS, out=tmp_path / "notes.txt", bounds=BOUNDS)


def test_no_point_stays_worse_than_a_tighter_one(whole):
    """As a search may leave it within its gap: here by far more, so that it shows."""
    with jax.enable_x64(True):
        made = room._Grid(question(), BUDGETS, np.inf, (), BOUNDS)
        left = Store.opened(whole[1]).partials()
        numbers, points = left["numbers"], left["point"]
        goal = made.column(numbers, "run_cost_usd")
        old, bound = goal.copy(), made.column(numbers, "lower_bound")[0]
        goal[0] *= 1.1
        room._improve(made, numbers, points)
    assert old[0] * (1 - 1e-4) <= goal[0] <= np.nanmin(old[1:]) < 1.1 * old[0]
    assert made.column(numbers, "lower_bound")[0] == bound
    np.testing.assert_array_equal(goal[1:], old[1:])


@pytest.mark.parametrize(
    ("budgets", "more", "words"),
    [
        ({}, {}, "name a budget"),
        ({"power_budget": [4e7]}, {}, "not a field of the question: did you mean .*'power_budget_w'"),
        ({"tokens": [4e7]}, {}, "'tokens' is not a budget of the question"),
        ({"power_budget_w": [4e7, 4e7]}, {}, "listed twice"),
        ({"power_budget_w": []}, {}, "at least one"),
        ({"power_budget_w": [4e7, float("nan")]}, {}, "positive, finite"),
        ({"power_budget_w": np.linspace(1e7, 4e7, 200), "capex_budget_usd": np.linspace(1e9, 2e9, 200)}, {}, "40,000"),
        ({"power_budget_w": [4e7]}, {"seconds": 0}, "seconds = 0"),
        ({"power_budget_w": [4e7]}, {"freeze": ["clock"]}, "neither a variable nor a category"),
    ],
)
def test_what_cannot_be_meant_is_refused(budgets, more, words):
    with pytest.raises(UserError, match=words):
        hwopt.frontier(question(), budgets, **more)

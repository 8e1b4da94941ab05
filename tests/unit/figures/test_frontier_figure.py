"""The figure of a frontier, from made-up numbers."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from matplotlib.image import imread

from hwopt.output.figures.frontier import plot_frontier
from hwopt.output.figures.style import NothingToDraw

LEVELS = {"power_budget_w": np.linspace(30e6, 60e6, 7), "capex_budget_usd": np.array([1e9, 1.2e9, 1.6e9, 2.5e9])}


def made(names, tightest=34e6):
    power, *others = np.meshgrid(*(LEVELS[name] for name in names), indexing="ij")
    dearer = sum(1e6 * (3e9 / each) for each in others) if others else 0.0
    held = power >= tightest
    goal = np.where(held, 4e7 + 5e14 / power + dearer, np.nan)
    stated = {
        "run_cost_usd": (goal, "USD"), "lower_bound": (0.9999 * goal, "USD"), "gap": (np.where(held, 1e-4, np.nan), "1"),
        "feasible": (held.astype("i1"), "1"), "certified": (np.ones_like(held, "i1"), "1"),
    }  # fmt: skip
    stated |= {f"shadow_price_{name}": (np.where(held, 5e14 / power**2, np.nan), "USD/W") for name in names}
    return xr.Dataset(
        {name: (names, x, {"units": unit, "long_name": name.replace("_", " ")}) for name, (x, unit) in stated.items()},
        {
            name: (name, LEVELS[name], {"units": "W" if "_w" in name else "USD", "long_name": "budget"})
            for name in names
        },
        {"title": "train_cost", "objective": "run_cost_usd", "objective_unit": "USD"},
    )


@pytest.mark.parametrize("names", [("power_budget_w",), ("power_budget_w", "capex_budget_usd")])
def test_a_figure_of_one_budget_and_of_two(names, tmp_path):
    drawn = []
    for number, tightest in enumerate((0.0, 44e6)):
        dataset = made(names, tightest)
        plot_frontier(dataset, tmp_path / f"{number}.png")
        drawn.append(imread(tmp_path / f"{number}.png"))
    assert drawn[0].shape[0] > 500
    assert drawn[0].shape != drawn[1].shape or (drawn[0] != drawn[1]).any()


def test_points_that_are_not_certified_and_levels_that_stand_alone(tmp_path):
    dataset = made(tuple(LEVELS)).isel(capex_budget_usd=[1])
    dataset.certified[:3] = 0
    plot_frontier(dataset, tmp_path / "one.png")
    dataset = made(tuple(LEVELS))
    dataset.certified[:3] = 0
    plot_frontier(dataset, tmp_path / "two.png")
    assert imread(tmp_path / "one.png").std() > 0.05 and imread(tmp_path / "two.png").std() > 0.05


def test_nothing_to_draw(tmp_path):
    with pytest.raises(NothingToDraw, match="no point of the frontier is feasible"):
        plot_frontier(made(("power_budget_w",), 1e9), tmp_path / "none.png")
    with pytest.raises(NothingToDraw, match="over 0 budgets"):
        plot_frontier(made(("power_budget_w",)).isel(power_budget_w=[-1]), tmp_path / "none.png")
    with pytest.raises(NothingToDraw, match="holds no frontier"):
        plot_frontier(xr.Dataset(), tmp_path / "none.png")
    assert not list(tmp_path.iterdir())

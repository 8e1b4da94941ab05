"""Frontiers of choices as one: the best at every point, under the least bound, against the frontiers apart."""

import numpy as np
import pytest

import hwopt
from hwopt.analysis import frontier
from hwopt.analysis.best_of_frontiers import best_of
from hwopt.errors import UserError
from tests.unit.analysis.test_frontier import once

SMALL = {
    "workload": "llama3.1-8b",
    "tokens": 1e12,
    "time_budget_s": 60 * 86400.0,
    "recompute": "none",
    "offload": "none",
}
LEVELS = {"power_budget_w": [1e5, 6e5]}
BOXES = {
    "tp": (2.0, 2.0), "pp": (1.0, 1.0), "cp": (1.0, 1.0), "zero": (1.0, 1.0), "micro_batch": (1.0, 1.0),
    "chips_per_rack": (8.0, 16.0),
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def searched_once():
    """Frontiers of one chip and of all ask the same questions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frontier, "optimize", once({}))
        yield


@pytest.fixture(scope="module")
def apart():
    ask = lambda chip: hwopt.frontier(hwopt.objective("train_cost", chip=chip, **SMALL), LEVELS, bounds=BOXES)
    return {chip: ask(chip) for chip in ("h100-sxm", "a100-80")}


def test_each_point_is_the_best_of_all(apart, tmp_path):
    choices = {"chip": list(apart)}
    asked = hwopt.objective("train_cost", **SMALL)
    both = hwopt.frontier(asked, LEVELS, bounds=BOXES, choices=choices, out=tmp_path / "both")
    assert {each.name for each in (tmp_path / "both").iterdir()} == {f"chip={name}" for name in apart}
    costs = np.stack([each["run_cost_usd"] for each in apart.values()])
    np.testing.assert_array_equal(both["run_cost_usd"], np.fmin.reduce(costs))
    for point in range(len(LEVELS["power_budget_w"])):
        name = str(both["choice"][point].item())
        if np.isnan(costs[:, point]).all():
            assert name == "" and not both["feasible"][point]
            continue
        best = apart[name.removeprefix("chip=")]
        assert both["run_cost_usd"][point] == best["run_cost_usd"][point] and both["tp"][point] == best["tp"][point]
        assert both["certified"][point] and both["lower_bound"][point] <= both["run_cost_usd"][point]
        assert both["gap"][point] < 1e-3
    assert both["feasible"].sum() > 0


def test_what_is_not_proved_of_one_is_not_of_all(apart):
    first, second = (each.copy(deep=True) for each in apart.values())
    second["certified"][-1] = 0
    assert not best_of([first, second], ["a", "b"])["certified"][-1]


def test_a_choice_that_is_none_is_refused():
    with pytest.raises(UserError, match="not a field of the question"):
        hwopt.frontier(hwopt.objective("train_cost"), LEVELS, choices={"cheep": ["8"]})

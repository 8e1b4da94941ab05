"""What the screen and the JSON of a sweep say, held against the rows they sum up."""

import json
import re

import numpy as np
import pytest

import hwopt
from hwopt.output.answers.sweep import sweep_answer
from hwopt.output.answers.sweep_document import budgets_of, sweep_document
from tests.toy import ToyCost

SAMPLES = 2000


@pytest.fixture(scope="module")
def feasible():
    return hwopt.sweep(ToyCost(), SAMPLES, choices={"chip": ["h100-sxm", "b200"]})


@pytest.fixture(scope="module")
def infeasible():
    return hwopt.sweep(ToyCost(time_budget_s=1.2e6, capex_budget_usd=4e8), SAMPLES)


def numbers(document):
    """Every number of a document, however deep."""
    if isinstance(document, dict):
        document = list(document.values())
    if isinstance(document, list):
        return [x for each in document for x in numbers(each)]
    return [document] if isinstance(document, float) else []


def test_document_is_strict_json_and_has_the_contract(feasible, infeasible):
    for dataset in (feasible, infeasible):
        document = sweep_document(dataset)
        assert json.loads(json.dumps(document, allow_nan=False)) == document
        wanted = {"question", "objective", "samples", "cases", "method", "seed", "evaluated", "possible"}
        wanted |= {"feasible_count", "nonfinite", "feasible", "best", "front", "bottlenecks", "out", "figures"}
        assert wanted <= set(document)
        assert all(np.isfinite(numbers(document)))
        assert not any("seconds" in name for name in document)


def test_counts_and_shares_are_those_of_the_rows(feasible):
    document = sweep_document(feasible)
    assert document["evaluated"] == 2 * SAMPLES == feasible["feasible"].size
    assert document["feasible_count"] == int((feasible["feasible"] == 1).sum())
    assert document["possible"] == int((feasible["possible"] == 1).sum())
    assert sum(document["bottlenecks"].values()) == pytest.approx(1)
    names = feasible["bottleneck"].attrs["flag_meanings"].split()
    held = feasible["bottleneck"].values[feasible["possible"].values == 1]
    for name, share in document["bottlenecks"].items():
        assert share == pytest.approx(np.mean(held == names.index(name)))
    assert [each["case"] for each in document["by_case"]] == document["cases"]
    assert sum(each["feasible_count"] for each in document["by_case"]) == document["feasible_count"]


def test_the_best_is_the_least_of_the_feasible_rows(feasible):
    document = sweep_document(feasible)
    best = document["best"][0]
    rows = np.where(feasible["feasible"].values == 1, feasible["run_cost_usd"].values, np.inf)
    case, variant = np.unravel_index(np.argmin(rows), rows.shape)
    assert document["feasible"] and best["feasible"] and best["possible"]
    assert (best["case"], best["variant"]) == (document["cases"][case], variant)
    assert best["objective"] == pytest.approx(rows.min(), rel=1e-4)
    assert best["objective"] == best["metrics"]["run_cost_usd"]["value"]
    assert best["design"]["chips"] == {
        "value": float(feasible["chips"][case, variant]), "unit": "chip", "lower": 64.0, "upper": 400000.0
    }  # fmt: skip
    assert all(each["used"] <= each["limit"] * (1 + 1e-6) for each in best["budgets"])
    least = min(each["objective"] for each in document["by_case"])
    assert least == pytest.approx(best["objective"], rel=1e-4)


def test_the_front_is_ordered_and_nothing_on_it_is_beaten(feasible):
    front = sweep_document(feasible)["front"]
    points = np.array([[x["value"] for x in each["metrics"].values()] for each in front])
    assert len(front) > 1
    assert np.all(np.diff(points[:, 0]) > 0) and np.all(np.diff(points[:, 1]) < 0)


def test_elasticities_are_deciles_of_the_possible_rows(infeasible):
    slopes = np.random.default_rng(0).normal(size=(2, SAMPLES))
    attrs = {"flag_values": [0, 1], "flag_meanings": "chips clock_ratio"}
    dataset = infeasible.assign(elasticity=(("input", "variant"), slopes, attrs))
    found = sweep_document(dataset)["elasticities"]
    held = slopes[:, infeasible["possible"].values == 1]
    assert [each["median"] for each in found.values()] == pytest.approx(np.median(held, axis=1))
    assert found["chips"]["low"] < found["chips"]["median"] < found["chips"]["high"]
    assert re.search(r"  chips +[-+]0", sweep_answer(dataset).screen())


def test_the_nearest_possible_variant_breaks_budgets_alone(infeasible):
    document = sweep_document(infeasible)
    near = document["best"][0]
    assert not document["feasible"] and document["feasible_count"] == 0
    assert near["possible"] and infeasible["possible"][near["variant"]] == 1
    over = max(np.log(each["used"] / each["limit"]) for each in near["budgets"])
    assert over == pytest.approx(near["violation"], abs=1e-4)
    possible = infeasible["violation"].values[infeasible["possible"].values == 1]
    assert near["violation"] == pytest.approx(possible.min())


def test_a_budget_on_a_ratio_has_no_unit(infeasible):
    """An empty unit must not vanish from the list of units, which are kept as words with spaces between them."""
    counted = infeasible.copy()
    counted["budget_limit"] = counted["budget_limit"].assign_attrs(budget_units="1 USD W")
    assert [each.unit for each in budgets_of(counted)] == ["", "USD", "W"]
    assert infeasible["budget_limit"].attrs["budget_units"] == "s USD W"


def test_screens_fit_a_terminal_and_say_what_matters(feasible, infeasible):
    for dataset in (feasible, infeasible):
        screen = sweep_answer(dataset, "runs/a", ["runs/a.figures/pareto.png"]).screen()
        lines = screen.split("\n")
        assert len(lines) <= 75 and max(map(len, lines)) <= 120
        assert 'xarray.open_zarr("runs/a")' in screen and "runs/a.figures: pareto.png" in screen
        assert "Pareto front of" in screen and "nan" not in screen
    good, bad = sweep_answer(feasible).screen(), sweep_answer(infeasible).screen()
    assert "Best design: variant" in good and "What to try" not in good and "chip=b200" in good
    assert "No feasible design among 2,000. The closest one violates:" in bad
    assert "hwopt optimize toy_cost" in bad and "--samples 20,000" in bad
    assert re.search(r"feasible with --[a-z-]+ [0-9.e+]+", bad)
    assert "Store" not in good and "--out" in good


def test_without_a_finite_variant_it_says_so(infeasible):
    empty = infeasible.isel(rank=slice(0, 0))
    assert "No result: the model has no finite numbers" in sweep_answer(empty).screen()
    json.dumps(sweep_document(empty), allow_nan=False)


def test_the_screen_needs_no_rows(infeasible):
    lean = infeasible.drop_vars([name for name in infeasible if "variant" in infeasible[name].dims])
    assert sweep_answer(lean).screen() == sweep_answer(infeasible).screen()
    assert "Looser budgets" in sweep_answer(lean).screen() and "feasible with" in sweep_answer(lean).screen()

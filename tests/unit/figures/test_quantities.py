"""What axes say: units that fit, ticks that can be read, budgets that find their metric."""

from __future__ import annotations

import numpy as np
import pytest

from hwopt.output.answers.sweep_document import budgets_of
from hwopt.output.figures.quantities import axis_quantity, fitted, tick_text, ticks
from hwopt.output.figures.sweep_contents import spread


@pytest.mark.parametrize(
    ("unit", "values", "shown", "factor"),
    [
        ("USD", [3e8, 2e9], "M$", 1e6),
        ("USD", [1e9, 6e9], "B$", 1e9),
        ("USD", [2e4, 9e4], "$", 1.0),
        ("s", [3.5e6, 1e7], "days", 86400.0),
        ("s", [0.2, 8.0], "s", 1.0),
        ("s", [2e-3, 3e-2], "ms", 1e-3),
        ("B/s", [1e12, 12e12], "TB/s", 1e12),
        ("B/s", [6.25e9, 2e11], "GB/s", 1e9),
        ("chip", [1e3, 4e5], "chip", 1.0),
        ("m2", [5e-5, 3.2e-3], "mm2", 1e-6),
        ("1", [0.1, 0.5], "", 1.0),
        ("W", [np.nan, 0.0], "W", 1.0),
    ],
)
def test_the_unit_fits_the_numbers(unit, values, shown, factor):
    found = fitted("words", unit, values)
    assert found.shown == shown and found.factor == pytest.approx(factor, rel=1e-12)
    assert found.scaled(values) == pytest.approx(np.array(values) / factor, nan_ok=True)


def test_labels_say_nothing_twice_and_open_no_formula():
    assert fitted("chips", "chip", [1.0]).label == "chips"
    assert fitted("domain", "chip", [1.0]).label == "domain (chip)"
    assert fitted("capital", "USD", [2e9]).label == r"capital (B\$)"
    assert fitted("capital", "USD", [2e9]).text(2.5e9) == r"2.5 B\$"
    assert fitted("area", "m2", [8e-4]).text(8.14e-4) == "814 mm2"


def test_words_come_from_the_dataset(sweep):
    dataset = sweep(rows=300)
    assert axis_quantity(dataset, "capex_usd", [1.0]).words == "capital"
    assert axis_quantity(dataset.drop_vars("capex_usd"), "capex_usd", [1.0]).words == "capital"
    assert axis_quantity(dataset[[]], "run_cost_usd", [2e9]).label == r"run cost usd (B\$)"


def test_ticks_are_few_and_round():
    assert [tick_text(value) for value in (0.05, 300.0, 2000.0, 2e4, 1.5e6, 3e9, 1e-6)] == [
        "0.05", "300", "2000", "20k", "1.5M", "3B", "1e-6"
    ]  # fmt: skip
    for low, high in ((41.0, 43.5), (1.0, 12.0), (64.0, 4e5), (6.25, 200.0), (1.0, 8.0), (0.5, 1.08), (1e-3, 1e9)):
        found = ticks(low, high)
        assert 3 <= len(found) <= 11 and low <= min(found) and max(found) <= high


def test_budgets_find_their_metric(sweep):
    dataset = sweep(rows=300)
    found = budgets_of(dataset)
    assert [each.metric for each in found] == ["run_time_s", "capex_usd", "peak_power_w"]
    assert [each.words for each in found] == ["time budget", "capex budget", "power budget"]
    dataset["budget_limit"].attrs["budget_metrics"] = "step_time_s mfu power_w"
    assert [each.metric for each in budgets_of(dataset)] == ["step_time_s", "mfu", "power_w"]
    assert budgets_of(dataset[[]]) == []


def test_places_are_spread_evenly():
    assert list(spread(5, 10)) == [0, 1, 2, 3, 4]
    found = np.asarray(spread(2**17, 2**12))
    assert 0.98 * 2**12 <= found.size <= 2**12 and found.min() >= 0 and found.max() < 2**17
    assert np.ptp(np.histogram(found, 16, (0, 2**17))[0]) <= 4
    assert abs(np.mean(found % 2) - 0.5) < 0.05  # even steps would see one half of a Sobol sequence

"""Sustained matrix rates of one silicon sold at several powers: the law of throttled chips, beside what was measured."""

from __future__ import annotations

import pytest

from hwopt.catalog.load import record
from hwopt.catalog.names import names

MEASURED = [
    # chip of the pair, W, TFLOP/s; the other, W, TFLOP/s: best shapes of mamf-finder
    ("A100 PCIe and SXM, bf16", 300.0, 252.9, 400.0, 271.2),
    ("H100 and GH200, bf16", 700.0, 794.5, 900.0, 828.6),
    ("H100 and GH200, fp8", 700.0, 1402.6, 900.0, 1535.0),
    ("B200 and B300, bf16", 1000.0, 1745.0, 1100.0, 1769.0),
    ("B200 and B300, fp8", 1000.0, 3432.5, 1100.0, 3353.3),
    ("B200 and GB200, bf16", 1000.0, 1745.0, 1200.0, 1822.0),
    ("B200 and GB200, fp8", 1000.0, 3432.5, 1200.0, 3615.6),
    ("MI300X and MI325X, bf16", 750.0, 668.4, 1000.0, 784.9),
]

FROM = {
    # entry -> the chip whose measured rates it has, and the share of that chip's cores that it has
    "h100-96gb-hbm2e-500w": ("h100-sxm", 1.0),
    "h100-pcie": ("h100-sxm", 114 / 132),
    "b100": ("b200", 1.0),
    "gb300": ("b300", 1.0),
    "mi325x": ("mi300x", 1.0),
    "mi350x": ("mi355x", 1.0),
    "h200-nvl": ("h200", 1.0),
    "h100-nvl": ("h100-sxm", 1.0),
}


def by_power(power: float, cores: float = 1.0, threshold: float = 0.4) -> float:
    """Rate over that of the same silicon: `n f` of `P/P_0 = n f (v + (1 - v) f)^2`, by bisection.

    The model's law of voltage and clock. What idles and leaks grows with TDP; large products leave HBM nearly idle.
    """
    low, high = 0.0, 4.0
    for _ in range(100):
        clock = 0.5 * (low + high)
        needed = cores * clock * (threshold + (1.0 - threshold) * clock) ** 2
        low, high = (clock, high) if needed < power else (low, clock)
    return cores * clock


@pytest.mark.parametrize("pair", MEASURED, ids=[pair[0] for pair in MEASURED])
def test_measured_pairs_follow_the_law_of_voltage_and_clock(pair):
    _, low_w, low, high_w, high = pair
    print(f"{pair[0]}: measured {high / low:.3f}, by power {by_power(high_w / low_w):.3f}")
    assert high / low == pytest.approx(by_power(high_w / low_w), rel=0.075)


def derived(name: str) -> list[str]:
    entry = record("chips", name)
    stated = [key for key in entry.quantities if key.startswith("matmul_efficiency.")]
    return [key.split(".")[1] for key in stated if entry.quantities[key].source == "hwopt-power"]


def test_entries_that_follow_from_power_are_listed():
    assert {name for name in names("chips") if derived(name)} == set(FROM)


@pytest.mark.parametrize("name", FROM)
def test_entries_follow_from_the_measured_chip(name):
    entry, (other, cores) = record("chips", name), FROM[name]
    measured = record("chips", other)
    assert entry.si("threshold_voltage_fraction") == measured.si("threshold_voltage_fraction")
    faster = by_power(entry.si("tdp") / measured.si("tdp"), cores, entry.si("threshold_voltage_fraction"))
    for precision in derived(name):
        sustained = measured.si(f"matmul_efficiency.{precision}") * measured.si(f"peak.{precision}") * faster
        own = entry.si(f"matmul_efficiency.{precision}") * entry.si(f"peak.{precision}")
        assert own == pytest.approx(sustained, rel=2e-3), precision


def test_formats_without_a_measurement_are_no_faster_than_those_of_their_width():
    """Of Blackwell: TF32 no more of its peak than bf16, int8 no more than fp8."""
    for name in ("b100", "b200", "b300", "gb200", "gb300"):
        entry = record("chips", name)
        for other, known in (("tf32", "bf16"), ("int8", "fp8")):
            assert entry.si(f"matmul_efficiency.{other}") <= entry.si(f"matmul_efficiency.{known}"), (name, other)

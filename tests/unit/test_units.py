"""Units: conversion is exact, printing converts back, unknown units are refused with a suggestion."""

import pytest

from hwopt.errors import UserError, suggest
from hwopt.units import MULTIPLIERS, pretty, si_unit, to_si


@pytest.mark.parametrize(
    ("value", "unit", "si"),
    [
        (3.35, "TB/s", 3.35e12),
        (400, "Gb/s", 50e9),
        (1, "KiB", 1024),
        (2, "pJ/bit", 1.6e-11),
        (0.0826, "USD/kWh", 0.0826 / 3.6e6),
        (429, "g/kWh", 0.429 / 3.6e6),
        (1, "USD/(Gb/s)", 8e-9),
        (1, "year", 365.25 * 86400),
        (2, "us", 2e-6),
    ],
)
def test_conversion(value, unit, si):
    assert to_si(value, unit) == pytest.approx(si, rel=1e-15)


def test_every_si_unit_is_its_own():
    for unit, (factor, si) in MULTIPLIERS.items():
        assert factor > 0
        if si in MULTIPLIERS:
            assert MULTIPLIERS[si] == (1.0, si), unit
        assert si_unit(unit) == si


def test_unknown_unit_suggests():
    with pytest.raises(UserError, match=r"did you mean .*'T[Bb]/s'"):
        to_si(1, "TBs")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (3.35e12, "B/s", "3.35 TB/s"),
        (30 * 86400, "s", "30 days"),
        (0.0042, "s", "4.2 ms"),
        (1.5e9, "USD", "1.5 B$"),
        (31905, "USD", "31,905 $"),
        (50e6, "W", "50 MW"),
        (0.41, "fraction", "41 %"),
        (16384, "chip", "16,384 chip"),
        (float("nan"), "W", "nan W"),
        (0.0, "B", "0 B"),
    ],
)
def test_printing(value, unit, text):
    assert pretty(value, unit) == text


def test_suggestions_list_what_is_known_when_nothing_is_close():
    assert suggest("zzzz", ["b", "a"]) == "known: a, b"
    assert suggest("h100", ["h100-sxm", "a100"]) == "did you mean 'h100-sxm'?"
    assert suggest("x", []) == "none is known"

"""Units: conversion is exact, printing converts back, unknown units are refused with a suggestion."""

import math

import pytest

from hwopt.errors import UserError, suggest
from hwopt.units import MULTIPLIERS, pretty, read_amount, to_si, unit_in_name


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
    assert suggest("x", []) == "none exists"


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("20MW", "W", 20e6),
        ("20 MW", "W", 20e6),
        ("60d", "s", 60 * 86400.0),
        ("1.45B$", "USD", 1.45e9),
        ("$1.45B", "USD", 1.45e9),
        ("1.45 B$", "USD", 1.45e9),
        ("20M", "USD", 20e6),
        ("15.6T", "token", 15.6e12),
        ("15.6T tokens", "token", 15.6e12),
        ("405B", "parameter", 405e9),
        ("1,200", "chip", 1200.0),
        ("1k", "", 1000.0),
        ("80GB", "B", 80e9),
        ("400Gb/s", "B/s", 50e9),
        ("400 Gbps", "B/s", 50e9),
        ("989 TFLOPS", "FLOP/s", 989e12),
        ("41%", "", 0.41),
        ("50 GWh", "J", 50 * 3.6e12),
        ("2.5e6", "W", 2.5e6),
        ("none", "USD", math.inf),
    ],
)
def test_amounts_are_read_as_people_write_them(text, unit, value):
    assert read_amount(text, unit) == pytest.approx(value, rel=1e-15)


OUTSIDE = ["1e400", "1e-400", "9" * 400, "1e308 kG", "1_000", "1_0", "1,0000", "1,,000", "٣", "１２", "+-3", "1.2.3", "inf", "-inf",
           "Infinity", "nan", "1 0", "10 MW MW", "²", "½", "1e5e5"]  # fmt: skip
"""Texts that Python would read as a number, or as a different one."""


@pytest.mark.parametrize("unit", ["", "W", "s", "USD", "B", "B/s", "FLOP/s", "J", "token"])
@pytest.mark.parametrize(
    "text", ["", " ", "MW", ".", "1,2", "-", "5 bananas", "--3W", "1e", "0x10", "5 5", "4%%", "k", *OUTSIDE]
)
def test_what_is_no_amount_is_refused(text, unit):
    with pytest.raises(UserError):
        read_amount(text, unit)


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("--power-budget-w", "W"),
        ("time_budget_s", "s"),
        ("--capex-budget-usd", "USD"),
        ("hbm_bandwidth_bytes_per_s", "B/s"),
        ("heat_flux_budget_w_per_m2", "W/m2"),
        ("--tokens", ""),
        ("--chips", ""),
        ("--bounds tp", ""),
    ],
)
def test_names_say_their_unit(name, unit):
    assert unit_in_name(name) == unit

"""Divisors, in order."""

from hwopt.integers.enumeration import divisors


def test_divisors():
    assert divisors(36) == [1, 2, 3, 4, 6, 9, 12, 18, 36]

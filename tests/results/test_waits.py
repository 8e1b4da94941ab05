"""The constants of the chance to wait for a slot are what their fit gives."""

import shutil

import numpy as np
import pytest

from results.benchmarks.percentiles import seen_together
from results.benchmarks.waits import COMMITTED, Services, fitted, halves, services

needs_a_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def test_a_fit_to_the_form_itself_finds_its_constants():
    """Odds as of other constants, with and without errors of one service that no constant explains."""
    rng = np.random.default_rng(0)
    factors = np.column_stack([np.ones(40), rng.normal(size=(40, 3))])
    bare, wanted = rng.normal(size=40), np.array([0.7, 1.4, -0.2, 0.3])
    exact = bare + factors @ np.array([np.log(0.7), *wanted[1:]])
    found, errors = fitted(Services(exact, bare, factors))
    np.testing.assert_allclose(found, wanted, rtol=1e-9)
    assert (errors < 1e-9).all()
    shaken = Services(exact + 0.1 * rng.normal(size=40), bare, factors)
    found, errors = fitted(shaken)
    known = np.linalg.lstsq(factors, shaken.simulated - bare, rcond=None)[0]
    np.testing.assert_allclose(found, [np.exp(known[0]), *known[1:]], rtol=1e-9)
    assert (np.abs(found - wanted) < 4.0 * errors).all() and (errors < 0.05).all()


@needs_a_compiler
def test_services_wait_as_often_as_simulated_ones():
    """Loads of 0.8 and 0.9 with bursts of each of the four services: no further off than all that the constants are fitted to."""
    cases = seen_together()
    some = [i for i, case in enumerate(cases) if case.load in (0.8, 0.9) and case.scvs[0] == 2.0]
    seen = services([cases[i] for i in some], some)
    off = seen.off(COMMITTED)
    assert len(off) == 8
    assert np.sqrt(np.mean(off * off)) < 0.1
    assert np.abs(off).max() < 0.3


@needs_a_compiler
@pytest.mark.search
def test_the_constants_are_what_the_fit_gives():
    """Each within its standard error; services that were left out are no further off than those fitted to."""
    seen, left = halves()
    found, errors = fitted(seen)
    assert (np.abs(found - COMMITTED) < errors).all()
    rms = lambda each: np.sqrt(np.mean(each * each))
    assert rms(seen.off(COMMITTED)) < 1.05 * rms(seen.off(found))
    assert rms(left.off(COMMITTED)) < rms(seen.off(COMMITTED))

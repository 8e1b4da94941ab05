"""The simulation in C that percentiles are held to is the one in Python, which tests read."""

import shutil

import numpy as np
import pytest

from results.benchmarks.percentiles import LEVELS, Case, _quantiles, counted
from tests.unit.model.simulated_service import Server, beside, two_groups

SERVER = Server(empty_s=0.02, each_s=0.0004, prompt_s=0.02, slots=16, tokens=64)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize("prompt_load", [0.0, 0.5])
def test_both_simulations_have_the_same_percentiles(prompt_load):
    """Each of its own random numbers, within what 40,000 requests of 2 streams at a load of 0.5 leave open."""
    scvs = (2.0, 1.0, 0.5)
    case = Case(SERVER, 0.5, scvs, 2, prompt_load, 2)
    unit = SERVER._replace(prompt_s=0.0).full_s if prompt_load else SERVER.full_s
    ours = _quantiles(counted(case, 400_000, 1).bins, unit)
    found = two_groups(SERVER, 0.5, 0.5, scvs, 2, 2) if prompt_load else beside(SERVER, 0.5, scvs, 2)
    np.testing.assert_allclose(ours, np.concatenate([np.quantile(each, LEVELS) for each in found]), rtol=0.05)

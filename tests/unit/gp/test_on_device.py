"""The compiled interior point against the processor's own: the same iteration, so the same verdicts and bounds."""

import jax
import numpy as np
import pytest

from hwopt.solver.gp import certificate
from hwopt.solver.gp.options import AcceleratorOptions, InteriorPointOptions
from hwopt.solver.gp.program import ProgramNumbers
from hwopt.solver.interior_point import device_loop
from hwopt.solver.interior_point.batch import solve
from hwopt.solver.interior_point.result import SolveStatus
from hwopt.solver.interior_point.sparsity import frame_of
from tests.unit.gp.test_interior_point import programmes

COUNT = 200
FEW_SLOTS = InteriorPointOptions(accelerator=AcceleratorOptions(slots=16, least_batch=64))


@pytest.fixture(scope="module")
def device():
    """A device of the processor's; `FEW_SLOTS` make most programmes wait for one."""
    return jax.devices("cpu")[0]


@pytest.fixture(scope="module")
def mixed():
    """Programmes with optima, without a feasible point, with an empty box, and with a group that has no terms."""
    structure, numbers, _ = programmes(5, problem=COUNT)
    shift = np.where(np.arange(COUNT) % 3 == 0, 40.0, 0.0)  # no point satisfies the first group
    constants = numbers.constants + shift[:, None] * (structure.group == 0)
    constants[1::7, structure.group == 2] = -np.inf
    lower = numbers.lower.copy()
    lower[4] = numbers.upper[4] + 1.0
    return structure, ProgramNumbers(constants, numbers.offsets, lower, numbers.upper)


def test_verdicts_and_bounds_are_the_processors(device, mixed):
    structure, numbers = mixed
    here, there = solve(structure, numbers), solve(structure, numbers, device=device, options=FEW_SLOTS)
    assert (here.status == there.status).all() and {SolveStatus.solved, SolveStatus.infeasible} <= set(here.status)
    best = here.status == SolveStatus.solved
    assert best.sum() > COUNT / 4
    np.testing.assert_allclose(there.objective[best], here.objective[best], atol=1e-8)
    bounds = certificate.lower_bound(structure, numbers.take(best), there.y[best], there.multipliers[best])
    assert (bounds <= here.objective[best]).all() and (here.objective[best] - bounds < 1e-8).all()
    none = (here.status == SolveStatus.infeasible) & (numbers.lower <= numbers.upper).all(axis=1)
    proofs = certificate.infeasibility(structure, numbers.take(none), there.y[none], there.multipliers[none])
    assert none.any() and (proofs > 0.0).all()


def test_a_programme_does_not_mind_its_neighbours_nor_how_many_they_are(device, mixed):
    structure, numbers = mixed
    some = np.array([3, 9, 40, 41, 199])
    whole, part = (solve(structure, each, device=device, options=FEW_SLOTS) for each in (numbers, numbers.take(some)))
    assert (whole.status[some] == part.status).all() and (whole.iterations[some] == part.iterations).all()
    np.testing.assert_allclose(part.y, whole.y[some], atol=1e-8)


def test_cutoffs_and_starts_are_heeded(device, mixed):
    structure, numbers = mixed
    known = solve(structure, numbers)
    best = known.status == SolveStatus.solved
    below = np.where(best, known.objective - 0.1, np.inf)
    dropped = solve(structure, numbers, cutoff=below, start=numbers.upper, device=device, options=FEW_SLOTS)
    assert (dropped.status[best] == SolveStatus.dropped).all() and (dropped.bound[best] > below[best]).all()


def test_no_programme_is_an_answer_of_none(device, mixed):
    structure, numbers = mixed
    assert len(solve(structure, numbers.take(slice(0, 0)), device=device, options=FEW_SLOTS).status) == 0


def test_slots_follow_from_memory(mixed, monkeypatch):
    frame, options = frame_of(mixed[0]), AcceleratorOptions(least_batch=128)

    class Small:
        platform = "gpu"

        def memory_stats(self):
            return {"bytes_limit": 1000 * device_loop.bytes_of_a_slot(frame), "bytes_in_use": 0}

    assert device_loop.slots_for(frame, 10**6, Small(), options) == 256  # the power of two below half of 1,000
    assert device_loop.slots_for(frame, 3, Small(), options) == 128  # batches are filled up
    monkeypatch.setattr(Small, "memory_stats", lambda self: None)
    assert device_loop.slots_for(frame, 10**6, Small(), options) == options.slots


def test_an_accelerator_gets_a_structure_that_had_many_programmes(mixed, monkeypatch):
    structure = programmes(6)[0]
    there, options = object(), AcceleratorOptions()
    monkeypatch.setattr(device_loop, "_accelerator", lambda: there)
    assert device_loop.choose_device(structure, options.after_programs - 1) is None
    assert device_loop.choose_device(structure, options.least_programs) is None  # there had been one too few
    assert device_loop.choose_device(structure, options.least_programs - 1) is None  # few are done here meanwhile
    assert device_loop.choose_device(structure, options.least_programs) is there

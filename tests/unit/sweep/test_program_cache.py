"""Programs of questions that were swept before are used again, and only theirs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import hwopt
from hwopt.sweeps.program_cache import decided, evaluator_of, forget
from hwopt.sweeps.run import SweepRun
from hwopt.sweeps.specification import Specification
from tests.toy import ToyCost

ASKED = ToyCost()
BOUNDS = {"tp": (4.0, 16.0)}


def evaluator(question=ASKED, samples=1000, **changed):
    return SweepRun(Specification(question, samples, **{"bounds": BOUNDS} | changed)).evaluators[0]


def test_another_seed_or_number_of_variants_is_the_same_program():
    first = evaluator()
    assert evaluator(seed=7)._compiled is first._compiled
    assert evaluator(samples=2000).program is first.program
    points = [hwopt.sweep(ASKED, 100, bounds=BOUNDS, seed=seed)["chips"].values for seed in (0, 1)]
    assert not np.array_equal(*points)


@pytest.mark.parametrize(
    "changed",
    [
        {"bounds": BOUNDS | {"tp": (4.0, 8.0)}},
        {"question": dataclasses.replace(ASKED, time_budget_s=90 * 86400.0)},
        {"question": dataclasses.replace(ASKED, tokens=3e12)},
        {"question": dataclasses.replace(ASKED, workload="llama3.1-70b")},
        {"metrics": ["mfu"]},
        {"dtype": "float64"},
        {"gradients": ["chips"]},
        {"method": "lhs"},
        {"freeze": ["clock_ratio"]},
    ],
)
def test_what_changes_a_number_is_another_program(changed):
    first, other = evaluator(), evaluator(**changed)
    assert other._compiled is not first._compiled


def test_a_redefined_metric_is_another_program():
    program = evaluator().program
    metric = dataclasses.replace(program.metrics[0], value=lambda report: 2.0 * report.run_cost_usd)
    other = dataclasses.replace(program, metrics=(metric, *program.metrics[1:]))
    assert decided(other) != decided(program)


def test_tables_are_not_kept():
    forget()
    spec = Specification(ASKED, table={"chips": [8192.0], "tp": [8.0]})
    sampler, program = spec.sampler(0), spec.programs[0]
    one, other = (evaluator_of(program, sampler, spec.tile, spec.dtype) for _ in range(2))
    assert one is not other and one._compiled is not other._compiled

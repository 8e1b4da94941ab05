"""Recomputation that a row leaves open is the share of it that just fits."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from hwopt.evidence.validation import predict as module
from hwopt.evidence.validation.predict import predict
from tests.cases import random_case
from tests.cases import replace as change


@dataclass(frozen=True)
class Row:
    """What `predict` reads of a joined case."""

    workload: object
    cluster: object
    plan: object
    full_if_too_big: bool = True


@pytest.fixture(scope="module")
def row():
    """A dense run on eight chips that recomputes nothing."""
    workload, cluster, plan = random_case(np.random.default_rng(3), "dense")
    ones = dict.fromkeys(("pp", "cp", "ep", "expert_tp", "virtual_stages", "fullest_stage", "last_stage"), 1.0)
    plan = change(plan, **ones, tp=1.0, dp=8.0, micro_batch=1.0, shard_groups=1.0, recompute_full=0.0)
    plan = change(plan, recompute_attention=0.0)
    workload = change(workload, global_batch_sequences=64.0, sequence_length=4096.0)
    return Row(workload, change(cluster, chips=8.0), plan)


def with_capacity(row: Row, capacity: float) -> Row:
    return replace(row, cluster=change(row.cluster, chip__hbm_capacity_bytes=capacity))


def recomputing(row: Row, share: float) -> Row:
    return replace(row, plan=change(row.plan, recompute_full=share))


@pytest.fixture(scope="module")
def ends(row):
    """Memory with nothing recomputed, and with everything."""
    roomy = with_capacity(row, 1e18)
    nothing, everything = predict([roomy, recomputing(roomy, 1.0)])
    assert nothing.memory_bytes > 1.05 * everything.memory_bytes
    return nothing.memory_bytes, everything.memory_bytes


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_the_share_that_fits(row, ends, part):
    """Memory falls linearly with the share, so what is found fills the chip."""
    capacity = ends[0] + part * (ends[1] - ends[0])
    (answer,) = predict([with_capacity(row, capacity)])
    assert answer.recompute_full == pytest.approx(part, rel=1e-9)
    assert answer.memory_bytes == pytest.approx(capacity, rel=1e-9)


def test_more_than_fits_is_all_of_it(row, ends):
    (answer,) = predict([with_capacity(row, 0.9 * ends[1])])
    assert answer.recompute_full == 1.0 and answer.memory_bytes > answer.memory_capacity_bytes


def test_what_fits_repeats_nothing_and_what_is_stated_stays(row, ends):
    stated = replace(with_capacity(row, ends[1]), full_if_too_big=False)
    fits = with_capacity(row, ends[0])
    assert [answer.recompute_full for answer in predict([fits, stated])] == [0.0, 0.0]


def test_each_row_gets_its_own_share(row, ends):
    capacities = [ends[0] + part * (ends[1] - ends[0]) for part in (-0.1, 0.25, 0.75, 1.5)]
    answers = predict([with_capacity(row, capacity) for capacity in capacities])
    assert [answer.recompute_full for answer in answers] == pytest.approx([0.0, 0.25, 0.75, 1.0], rel=1e-9)
    times = [answer.step_s for answer in answers]
    assert times == sorted(times) and times[0] < times[1] < times[2] < times[3]


def test_where_recomputation_saves_nothing_all_of_it_runs(row):
    (answer,) = predict([with_capacity(row, 1e18)])
    short = replace(answer, memory_bytes=2.0, memory_capacity_bytes=1.0)
    assert module._share_that_fits(short, short) == 1.0

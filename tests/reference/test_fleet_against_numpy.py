"""A fleet of several kinds of chips equals the plain-Python model, one kind equals today's run, and slopes are those of steps."""

from __future__ import annotations

import equinox as eqx
import jax
import numpy as np
import pytest

import hwopt
from hwopt import catalog
from hwopt.errors import UserError
from hwopt.hardware.cluster import Fleet
from hwopt.model.estimate import estimate
from hwopt.model.fleet.data_parallel import share_of
from hwopt.plan import FleetPlan
from tests.cases import KINDS, NO_SHELVES, count, random_cases, replace, take
from tests.in_numpy import in_numpy, once
from tests.reference.plain.fleet import estimate as plain_estimate
from tests.reference.plain.inputs import fields
from tests.reference.test_against_numpy import assert_same

ROWS = 16


def drawn():
    """A run on two kinds of chips with shares of its batch; plans of one kind serve both."""
    run, own, plan = random_cases(np.random.default_rng(500), ROWS, KINDS[0])
    _, other, _ = random_cases(np.random.default_rng(501), ROWS, KINDS[2])
    chips = plan.tp * plan.pp * plan.dp * plan.cp
    own, other = (replace(each, sites__count=1.0, chips=chips) for each in (own, other))
    plan, batch = replace(plan, local_steps=1.0), run.global_batch_sequences
    share = np.random.default_rng(502).uniform(0.3, 0.7, ROWS) * batch
    return run, Fleet((own, other)), FleetPlan((plan, plan), (share, batch - share))


def listed(tree):
    """Groups as lists: the reference reads fields of modules alone."""
    plain = fields(tree) if not hasattr(tree, "groups") else type("Listed", (), {})()
    for name in ("groups", "sequences"):
        if hasattr(tree, "groups") and hasattr(tree, name):
            setattr(plain, name, [fields(each) for each in getattr(tree, name)])
    return plain


def test_fleets_equal_the_reference():
    cases = drawn()
    report = in_numpy(estimate)(*cases)
    rows = [plain_estimate(*map(listed, take(cases, i))) for i in range(count(cases))]
    expected = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    assert_same({name: np.asarray(getattr(report, name)) for name in expected}, expected)
    waits = np.stack(report.waits)
    assert np.allclose(waits.min(axis=0), 0.0, atol=1e-12) and (waits[0] > 0.0).sum() > 2 and (waits[1] > 0.0).sum() > 2
    assert (report.ideal_step_time_s <= report.step_time_s * (1.0 + 1e-12)).all()


def test_one_kind_is_todays_run():
    run, fleet, plan = drawn()
    (own, _), (first, _) = fleet.groups, plan.groups
    today = in_numpy(estimate)(run, own, first)
    alone = in_numpy(estimate)(run, Fleet((own,)), FleetPlan((first,), (run.global_batch_sequences,)))
    names = [name for name in vars(alone) if hasattr(today, name) and name not in ("groups", "margins")]
    assert {"step_time_s", "run_cost_usd", "power_w", "goodput", "loss", "mfu"} <= set(names)
    for name in set(names) - ({"loss"} if run.ramp is not None else set()):
        np.testing.assert_allclose(getattr(alone, name), getattr(today, name), rtol=1e-12, err_msg=name)
    assert (alone.exchange_s == 0.0).all()
    np.testing.assert_allclose(alone.ideal_step_time_s, alone.step_time_s, rtol=1e-12)


RUN = catalog.training_run("llama3.1-8b", global_batch=96)
MIXED = Fleet((catalog.cluster("h100-sxm", 32), catalog.cluster("a100-80", 32)))


def planned(first: float) -> FleetPlan:
    shares = np.float64(first), np.float64(96.0 - first)
    return FleetPlan(tuple(catalog.plan(share_of(RUN, np.float64(96)), 32, tp=4) for _ in shares), shares)


def test_equal_shares_of_equal_chips_are_one_cluster():
    """But for gradients, which two groups reduce one after the other: within 3 % of the step."""
    half, whole = (replace(catalog.cluster("h100-sxm", chips), **NO_SHELVES) for chips in (32, 64))
    two = once(estimate)(RUN, Fleet((half, half)), planned(48.0))
    one = once(estimate)(RUN, whole, catalog.plan(RUN, 64, tp=4))
    assert two.step_time_s == pytest.approx(two.ideal_step_time_s, rel=1e-12) and max(two.waits) < 1e-12
    assert abs(two.step_time_s / one.step_time_s - 1.0) < 0.03
    assert two.capex_usd == pytest.approx(one.capex_usd, rel=1e-9)
    assert two.mean_time_between_failures_s == pytest.approx(one.mean_time_between_failures_s, rel=1e-9)
    assert two.run_cost_usd == pytest.approx(one.run_cost_usd, rel=0.03)


@pytest.mark.parametrize("steps", [1.0, 50.0])
def test_equal_sites_are_a_cluster_of_several_sites(steps):
    """But for the jitter of all chips instead of a site's, and a hall's distances: within 1 %."""
    half, local = (
        replace(catalog.cluster("h100-sxm", 32), **NO_SHELVES),
        lambda plan: eqx.tree_at(lambda p: p.local_steps, plan, np.float64(steps)),
    )
    fleet = Fleet((half, half), catalog.sites(2, "continental"))
    two = once(estimate)(RUN, fleet, FleetPlan(tuple(map(local, planned(48.0).groups)), planned(48.0).sequences))
    cluster = replace(catalog.cluster("h100-sxm", 64, sites=2, lines="continental"), **NO_SHELVES)
    one = once(estimate)(RUN, cluster, catalog.plan(RUN, 64, sites=2, tp=4, local_steps=steps))
    assert float(two.exchange_s) == pytest.approx(float(one.breakdown.sites_comm_s), rel=1e-6) and two.exchange_s > 0.0
    assert float(two.step_time_s) == pytest.approx(float(one.step_time_s), rel=0.01)
    assert float(two.run_cost_usd) == pytest.approx(float(one.run_cost_usd), rel=0.01)
    assert float(two.capex_usd) == pytest.approx(float(one.capex_usd), rel=1e-6)
    assert float(two.loss) == pytest.approx(float(one.loss), rel=1e-9)


def test_slopes_are_those_of_the_slowest():
    """A step answers to the share and the chips of the group that is waited for, money too."""

    def outcome(first, peak):
        own = MIXED.groups[1].chip.peak_flops_per_s
        fleet = eqx.tree_at(lambda f: f.groups[1].chip.peak_flops_per_s, MIXED, own * peak)
        report = estimate(RUN, fleet, FleetPlan(planned(64.0).groups, (first, 96.0 - first)))
        return report.step_time_s, report.cost_per_token_usd

    value = once(outcome)
    slopes = once(jax.jacrev(outcome, argnums=(0, 1)))(64.0, 1.0)
    for i in (0, 1):
        by_share, by_peak = slopes[i]
        assert by_share < 0.0 and by_peak < 0.0  # 32 sequences on A100 take longer than 64 on H100
        share = (value(64.0 + 1e-3, 1.0)[i] - value(64.0 - 1e-3, 1.0)[i]) / 2e-3
        peak = (value(64.0, 1.001)[i] - value(64.0, 0.999)[i]) / 2e-3
        np.testing.assert_allclose((by_share, by_peak), (share, peak), rtol=1e-4)


def test_shares_must_be_the_batch_and_groups_as_many():
    short = FleetPlan(planned(64.0).groups, (np.float64(64.0), np.float64(24.0)))
    report = once(estimate)(RUN, MIXED, short)
    assert not report.feasible and report.violations() == {"whole_batch": pytest.approx(96 / 88 - 1)}
    for machine, plan, named in (
        (MIXED, FleetPlan(short.groups[:1], short.sequences), "as many"),
        (MIXED, short.groups[0], "FleetPlan"),
        (MIXED.groups[0], short, "FleetPlan"),
    ):
        with pytest.raises(UserError, match=named):
            hwopt.estimate(RUN, machine, plan)
    with pytest.raises(UserError, match="ramp"):
        hwopt.estimate(catalog.training_run("llama3.1-405b", batch_ramp="1024@0.25T,2048"), MIXED, short)

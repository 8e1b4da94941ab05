"""The search for plans that serve against plain loops over `estimate`: one group of chips, two groups, and limits."""

import itertools
import math

import jax
import numpy as np
import pytest

import hwopt
from hwopt import catalog
from hwopt.errors import UserError
from hwopt.output.text.plans import plan_document
from hwopt.plan import Disaggregated, laid_out_as
from hwopt.planning.plan_search import fitting_chips
from hwopt.planning.plan_table import reports as plan_reports
from hwopt.planning.prefill_decode_pairs import PairGroup, chip_splits, pair_table
from hwopt.planning.serving_plans import batch_sizes
from tests.in_numpy import in_numpy, one_row
from tests.rotation import one_in, rotated

OBJECTIVES = ("cost_per_token_usd", "energy_per_token_j", "time_per_output_token_s")
FIRST, OUTPUT = "time_to_first_token_s", "time_per_output_token_s"


def value(report, name):
    return float(getattr(report, name))


def service(model, mode="serve", **asked):
    return catalog.service(
        model, mode=mode, **{"precision": "fp8", "input_tokens": 60_000, "output_tokens": 9000} | asked
    )


def cluster(chips, chip="h100-sxm"):
    return catalog.cluster(chip, chips, stack="tensorrt-llm-2025")


def plans(workload, chips, batches):
    """Every plan on so many chips that the checked constructor accepts, with tensor parallel experts inside tp."""
    numbers = range(1, chips + 1)
    experts = int(workload.model.experts)
    for tp, pp, dp in itertools.product(numbers, repeat=3):
        if tp * pp * dp != chips:
            continue
        places = itertools.product(range(1, experts + 1), numbers) if experts else [(1, tp)]
        for (ep, expert_tp), batch in itertools.product(list(places), batches):
            if tp % expert_tp:
                continue
            words = {"tp": tp, "pp": pp, "dp": dp, "ep": ep, "expert_tp": expert_tp, "batch": batch}
            try:
                yield catalog.serving_plan(workload, chips, **words)
            except UserError:
                continue


def reports(workload, machine, found):
    stacked = jax.tree.map(lambda *leaves: np.asarray(leaves, float), *found)
    mapped = plan_reports(workload, machine, stacked)
    return [jax.tree.map(lambda leaf: np.asarray(leaf)[row], mapped) for row in range(len(found))]  # noqa: B023


@pytest.mark.parametrize("asked", rotated((("llama3.1-8b", "serve"), ("deepseek-v2-lite", "decode")), 2), ids="-".join)
def test_a_plain_loop_finds_the_same(asked):
    workload, machine = service(*asked), cluster(4)
    found = reports(workload, machine, list(plans(workload, 4, batch_sizes(256))))
    fitting = [report for report in found if bool(report.feasible)]
    assert 20 < len(fitting) < len(found)
    for objective in OBJECTIVES:
        search = hwopt.best_plan(workload, machine, objective, 3)
        assert search.fitting == len(fitting) and search.gap == 0.0 and len(search.alternatives) == 3
        assert math.isclose(search.best.objective, min(value(each, objective) for each in fitting), rel_tol=1e-10)
        values = [search.best.objective, *(each.objective for each in search.alternatives)]
        assert all(a <= b * (1.0 + 1e-12) for a, b in itertools.pairwise(values))


LAYOUTS = ("redundant_experts", "two_batches", "cache_split")


def laid_out(workload, chips, batches):
    """Every plan of one stage with layouts that the constructor accepts: as few copies as fill ranks, or one more each."""
    experts = int(workload.model.experts)
    tp_dp = [(tp, chips // tp) for tp in range(1, chips + 1) if chips % tp == 0]
    for (tp, dp), ep, slots, two, split in itertools.product(
        tp_dp, range(1, chips + 1), (0, 1), ("no", "yes"), (1, 2, 3, 4)
    ):
        copies = -experts % ep + slots * ep
        if slots and ep == 1:
            continue
        for expert_tp, batch in itertools.product(range(1, tp + 1), batches):
            words = {"tp": tp, "dp": dp, "ep": ep, "expert_tp": expert_tp, "batch": batch, "redundant_experts": copies}
            try:
                if tp % expert_tp == 0:
                    yield catalog.serving_plan(workload, chips, **words, two_batches=two, cache_split=split)
            except UserError:
                continue


@one_in(4, 3)
def test_layouts_are_found_as_by_a_plain_loop():
    """On six chips, which do not divide 64 experts; of plans with one stage and the batches of a limit."""
    workload, machine = service("deepseek-v2-lite", "decode"), cluster(6)
    batch = 12
    found = [
        each for each in laid_out(workload, 6, (1, 2, 4, 6, 12)) if round(float(each.dp * each.micro_batch)) == batch
    ]
    shaped = next(each for each in found if each.layout is not None)
    stacked = jax.tree.map(
        lambda *leaves: np.stack(leaves), *(laid_out_as(each, shaped, workload.model.experts) for each in found)
    )
    mapped = in_numpy(hwopt.estimate)(one_row(workload), one_row(machine), stacked)
    values = mapped.time_per_output_token_s[mapped.feasible > 0]
    assert len(values) > 40
    search = hwopt.best_plan(workload, machine, OUTPUT, 20, layouts=LAYOUTS, batch=batch)
    one_stage = [each for each in (search.best, *search.alternatives) if float(each.plan.pp) == 1.0]
    assert math.isclose(one_stage[0].objective, float(values.min()), rel_tol=1e-10)
    assert (
        any(each.plan.layout is not None for each in (search.best, *search.alternatives))
        and "12 sequences at a time" in search.scope
    )
    plain = hwopt.best_plan(workload, machine, OUTPUT, 0, layouts=(), batch=batch)
    assert plain.examined < search.examined and plain.best.plan.layout is None
    said = [plan_document(each.report, each.plan) for each in (search.best, *search.alternatives)]
    assert all(
        each.get("expert_slots", 0) * each["ep"] != 64 or {"two_batches", "cache_split"} & each.keys() for each in said
    )
    assert plain.best.objective >= search.best.objective


def test_software_opens_layouts_to_the_search():
    """TensorRT-LLM 1.3 has redundant experts and split keys and values, not halves; nothing of it for a dense model on 8 chips."""
    machine = catalog.cluster("h200", 12, stack="tensorrt-llm-2026")
    scope = hwopt.best_plan(service("deepseek-v2-lite", "decode"), machine, OUTPUT, 0).scope
    assert "further copies of the 64 experts" in scope and "by token" in scope and "halves" not in scope
    dense = hwopt.best_plan(
        service("llama3.1-8b"), catalog.cluster("h200", 8, stack="tensorrt-llm-2026"), alternatives=0
    )
    assert dense.best.plan.layout is None and "by token" not in dense.scope


@one_in(4, 0)
def test_pairs_with_layouts():
    """The group for prompts has no split keys and values, the other one may; a single chip has no layout: all are one table."""
    workload = service("deepseek-v2-lite", input_tokens=30_000)
    machine = catalog.cluster("h200", 3, stack="tensorrt-llm-2026")
    pair, plain = (
        hwopt.best_plan(workload, machine, disaggregate=True, alternatives=0, layouts=each) for each in (LAYOUTS, ())
    )
    assert pair.examined > plain.examined
    assert pair.best.objective <= plain.best.objective * (1.0 + 1e-12)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"layouts": ["two_batch"]}, "two_batches"),
        ({"batch": 0}, "1 or more"),
        ({"batch": 1_000_003}, "no plan serves 1,000,003 sequences"),
        ({"batch": 8, "disaggregate": True}, "one group"),
    ],
)
def test_refusals_of_layouts_and_batches(asked, words):
    with pytest.raises(UserError, match=words):
        hwopt.best_plan(service("llama3.1-8b", "serve"), cluster(4), **asked)
    with pytest.raises(UserError, match="only a service"):
        run = catalog.training_run("llama3.1-8b")
        hwopt.best_plan(run, cluster(4), layouts=["two_batches"])


def test_limits_hold_or_are_missed_least():
    workload, machine = service("llama3.1-8b"), cluster(4)
    found = reports(workload, machine, list(plans(workload, 4, batch_sizes(256))))
    fitting = [report for report in found if bool(report.feasible)]
    middle = {name: sorted(value(each, name) for each in fitting)[len(fitting) // 3] for name in (FIRST, OUTPUT)}
    holding = [
        each for each in fitting if all(value(each, name) <= limit * (1 + 1e-9) for name, limit in middle.items())
    ]
    assert 0 < len(holding) < len(fitting)
    search = hwopt.best_plan(workload, machine, limits=middle)
    assert search.fitting == len(holding) and search.missed == {}
    least = min(value(each, "cost_per_token_usd") for each in holding)
    assert math.isclose(search.best.objective, least, rel_tol=1e-10)

    hard = {name: 0.5 * min(value(each, name) for each in fitting) for name in (FIRST, OUTPUT)}
    search = hwopt.best_plan(workload, machine, limits=hard)
    assert not search.feasible and search.alternatives == [] and search.lower_bound is None
    worst = min(max(value(each, name) / limit for name, limit in hard.items()) for each in fitting)
    assert math.isclose(max(search.missed.values()), worst - 1.0, rel_tol=1e-9)
    assert bool(search.best.report.feasible)


def all_pairs(workload, machine, chips):
    """Reports of every pair of plans on every split, mapped, those that fit."""
    with jax.enable_x64(True):
        made = []
        for first in range(1, chips):
            sides = [list(plans(workload, n, batch_sizes(most))) for n, most in ((first, 64), (chips - first, 64))]
            made += [Disaggregated(*pair) for pair in itertools.product(*sides)]
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *made)
        mapped = jax.tree.map(np.asarray, jax.vmap(lambda plan: hwopt.estimate(workload, machine, plan))(stacked))
        names = (*OBJECTIVES[:3], FIRST, "request_time_s", "carbon_per_token_kg")
        columns = {name: getattr(mapped, name) for name in names}
        return {name: column[mapped.feasible > 0] for name, column in columns.items()}


@pytest.mark.search
def test_two_groups_against_every_pair():
    workload, machine = service("llama3.1-8b", input_tokens=30_000), cluster(4)
    assert chip_splits(4) == [1, 2, 3]
    every = all_pairs(workload, machine, 4)
    limit = {FIRST: float(sorted(every[FIRST])[len(every[FIRST]) // 4])}
    limit[OUTPUT] = float(sorted(every[OUTPUT])[len(every[OUTPUT]) // 4])
    holds = (every[FIRST] <= limit[FIRST]) & (every[OUTPUT] <= limit[OUTPUT])
    assert 0 < holds.sum() < len(holds)
    for objective in every:
        search = hwopt.best_plan(workload, machine, objective, 2, disaggregate=True)
        assert math.isclose(search.best.objective, float(every[objective].min()), rel_tol=1e-9), objective
        search = hwopt.best_plan(workload, machine, objective, 0, disaggregate=True, limits=limit)
        assert math.isclose(search.best.objective, float(every[objective][holds].min()), rel_tol=1e-9), objective
        assert search.missed == {} and isinstance(search.best.plan, Disaggregated)
    hard = {FIRST: 0.5 * float(every[FIRST].min()), OUTPUT: 0.9 * float(every[OUTPUT].min())}
    search = hwopt.best_plan(workload, machine, disaggregate=True, limits=hard)
    worst = np.maximum(every[FIRST] / hard[FIRST], every[OUTPUT] / hard[OUTPUT]).min()
    assert not search.feasible
    assert math.isclose(max(search.missed.values()), float(worst) - 1.0, rel_tol=1e-9)


@pytest.mark.parametrize("level", rotated(("p95", "p99"), 2))
def test_two_groups_under_percentiles_against_every_pair(level):
    """No pair that satisfies the limits is left out by what its groups do alone; none at all without requests a second."""
    workload, machine = (
        service("llama3.1-8b", requests_per_s=3.0, arrival_scv=2.0, input_tokens=2048, output_tokens=512),
        cluster(2),
    )
    names = [f"{name[:-2]}_{level}_s" for name in (FIRST, OUTPUT)]
    with jax.enable_x64(True):
        groups = PairGroup(workload, machine, True), PairGroup(workload, machine, False)
        rows = np.stack([each.ravel() for each in np.meshgrid(*(group.fitting for group in groups), indexing="ij")])
        found = plan_reports(
            workload, machine, pair_table(groups[0].plans, groups[1].plans, rows).at(np.arange(rows.shape[1]))
        )
    fits = found.feasible > 0
    limits = {name: float(np.quantile(getattr(found, name)[fits], 0.4)) for name in names}
    holds = fits & np.all([getattr(found, name) <= limit for name, limit in limits.items()], axis=0)
    assert 0 < holds.sum() < fits.sum()
    search = hwopt.best_plan(workload, machine, disaggregate=True, alternatives=0, limits=limits)
    assert search.feasible and search.fitting == holds.sum()
    assert math.isclose(search.best.objective, float(found.cost_per_token_usd[holds].min()), rel_tol=1e-9)
    assert 0 < len(groups[1].holding(limits)) < len(groups[1].fitting)
    hard = {name: 0.3 * float(getattr(found, name)[fits].min()) for name in names}
    search = hwopt.best_plan(workload, machine, disaggregate=True, alternatives=0, limits=hard)
    assert not search.feasible and set(search.missed) == set(names)


@one_in(4, 1)
def test_two_kinds_of_chips_against_every_pair():
    workload = service("llama3.1-8b", input_tokens=30_000)
    pair = catalog.cluster_pair("h100-sxm", "h20", 3, stack="tensorrt-llm-2025")
    made = [
        Disaggregated(*each)
        for first in (1, 2)
        for each in itertools.product(*(list(plans(workload, n, batch_sizes(64))) for n in (first, 3 - first)))
    ]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *made)
    every = in_numpy(hwopt.estimate)(one_row(workload), one_row(pair), stacked)
    for objective in ("cost_per_token_usd", FIRST, OUTPUT):
        found = getattr(every, objective)[every.feasible > 0]
        search = hwopt.best_plan(workload, pair, objective, 0)
        assert len(found) > 100 and search.fitting and search.gap == 0.0
        batches = [float(each.micro_batch) for each in search.best.plan.groups.values()]
        assert max(batches) <= 64 and math.isclose(search.best.objective, float(found.min()), rel_tol=1e-9), objective
    better, ways = hwopt.every_split(workload, pair)
    alone = [hwopt.best_plan(workload, each, alternatives=0).best.objective for each in pair.groups]
    assert {each.way: each.best.objective for each in ways if each.way != "apart"} == dict(
        zip(("decode", "prefill"), alone, strict=True)
    )
    assert better.best.objective == ways[0].best.objective
    for asked, named in ((catalog.training_run("llama3.1-8b"), "serve"), (service("llama3.1-8b", "decode"), "alone")):
        with pytest.raises(UserError, match=named):
            hwopt.best_plan(asked, pair)
    with pytest.raises(UserError, match="ClusterPair"):
        hwopt.estimate(workload, pair, catalog.serving_plan(workload, 3, tp=1))
    with pytest.raises(UserError, match="share a site"):
        catalog.cluster_pair("h100-sxm", "h20", 4, sites=2)


@one_in(4, 2)
def test_every_split_has_its_best_plan():
    workload, machine = service("llama3.1-8b", input_tokens=30_000), cluster(3)
    every = {}
    for first in (1, 2):
        sides = [list(plans(workload, n, (1, 2, 3))) for n in (first, 3 - first)]
        made = [Disaggregated(*pair) for pair in itertools.product(*sides)]
        every[first] = [each for each in reports(workload, machine, made) if bool(each.feasible)]
    pair = hwopt.best_plan(workload, machine, disaggregate=True).best
    one = hwopt.best_plan(workload, machine).best
    better, ways = hwopt.every_split(workload, machine)
    assert better.best.objective == min(pair.objective, one.objective) == ways[0].best.objective
    assert [each.best.objective for each in ways] == sorted(each.best.objective for each in ways)
    apart = {round(value(each.best.report, "prefill_chips")): each.best.objective for each in ways}
    assert apart.keys() == {0, 1, 2} and apart[0] == one.objective and pair.objective == min(apart[1], apart[2])
    for first, found in every.items():  # of these plans none is better
        assert apart[first] <= min(value(each, "cost_per_token_usd") for each in found) * (1 + 1e-9)
    limit = {OUTPUT: 1.2 * min(value(each, OUTPUT) for each in every[1])}
    better, ways = hwopt.every_split(workload, machine, limits=limit)
    assert all(value(each.best.report, OUTPUT) <= limit[OUTPUT] * (1 + 1e-9) for each in ways if each.feasible)
    assert better.best.objective == ways[0].best.objective and ways[0].feasible
    hard = {OUTPUT: 1e-6}
    better, ways = hwopt.every_split(workload, machine, limits=hard)
    assert not better.feasible and not any(each.feasible for each in ways)
    assert max(ways[0].missed.values()) == min(max(each.missed.values()) for each in ways)


def test_where_nothing_fits_the_closest_and_the_chips_that_would_do():
    workload = catalog.service("llama3.1-70b")
    search = hwopt.best_plan(workload, cluster(1))
    assert not search.feasible and list(search.best.report.violations()) == ["memory"]
    chips = fitting_chips(workload, cluster, 1)
    assert chips is not None and hwopt.best_plan(workload, cluster(chips)).feasible
    assert not hwopt.best_plan(workload, cluster(2), disaggregate=True).feasible


def test_batches_are_powers_of_two_and_those_between():
    assert batch_sizes(1) == [1] and batch_sizes(0.3) == [1]
    assert batch_sizes(25) == [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24]
    assert chip_splits(128) == list(range(2, 128, 2)) and len(chip_splits(1000)) == 62


@pytest.mark.parametrize(
    ("asked", "mode", "named"),
    [
        ({"objective": "run_cost_usd"}, "serve", "not available for this workload"),
        ({"objective": "time_to_frist_token_s"}, "serve", "time_to_first_token_s"),
        ({"objective": "time_per_output_token_s"}, "prefill", "mode prefill has none"),
        ({"limits": {FIRST: 1.0}}, "decode", "mode decode has none"),
        ({"limits": {"power_w": 1.0}}, "serve", "'power_w' is no limit"),
        ({"limits": {FIRST: 0.0}}, "serve", "positive"),
        ({"common": {"local_steps": 2.0}}, "serve", "local_steps"),
        ({"disaggregate": True}, "decode", "one of them alone"),
        ({"disaggregate": True, "objective": "power_w"}, "serve", "'power_w' is no objective of two groups"),
    ],
)
def test_what_does_not_apply_is_refused(asked, mode, named):
    with pytest.raises(UserError, match=named):
        hwopt.best_plan(service("llama3.1-8b", mode), cluster(2), **asked)


def test_a_training_run_has_no_limits_and_no_groups():
    run, machine = catalog.training_run("llama3.1-8b"), catalog.cluster("h100-sxm", 8)
    for asked, named in (({"limits": {FIRST: 1.0}}, "limits"), ({"disaggregate": True}, "disaggregate")):
        with pytest.raises(UserError, match=named):
            hwopt.best_plan(run, machine, **asked)
    with pytest.raises(UserError, match="not available for this workload"):
        hwopt.best_plan(run, machine, FIRST)
    with pytest.raises(UserError, match="workload must be a Service"):
        hwopt.every_split(run, machine)


def test_one_chip_has_no_two_groups():
    with pytest.raises(UserError, match="two chips"):
        hwopt.best_plan(service("llama3.1-8b"), cluster(1), disaggregate=True)

"""Checked blueprints: every planted error is found on a line of its own, no sound line fails, and repairs mend what they say."""

import math
from functools import cache
from typing import Any

import numpy as np
import pytest

import hwopt
from hwopt import UserError, catalog
from hwopt.analysis.claim_check.check import _Checker
from hwopt.analysis.claim_check.check_line import CheckRelation, CheckVerdict, checked_line
from hwopt.analysis.claim_check.statement import QUANTITIES, blueprint_of
from hwopt.model.estimate import estimate
from hwopt.output.answers.claim_check import check_answer, summary
from hwopt.trace.cache import evaluate_in_numpy

MACHINES = (
    ("llama3.1-8b", "h100-sxm", 256, "tp=2,pp=1,cp=1,zero=1", "air"),
    ("llama3.1-70b", "h100-sxm", 1024, "tp=8,pp=2,cp=1,zero=1,recompute=selective", "direct-liquid"),
    ("llama3.1-70b", "b200", 512, "tp=4,pp=2,cp=1,zero=1,recompute=full", "direct-liquid"),
    ("gpt3-175b", "a100-80", 2048, "tp=8,pp=8,cp=1,zero=1,recompute=full", "air"),
    ("llama3.1-405b", "h200", 4096, "tp=8,pp=8,cp=1,zero=1,recompute=full", "direct-liquid"),
)

PLANTED = {
    # number -> how it is made wrong, and the line that says so
    "racks": (1.6, "racks"),
    "steps": (0.6, "steps"),
    "chip_memory": (2.0, "chip memory"),
    "peak": (2.0, "peak"),
    "time": (0.3, "time"),
    "mfu": (2.2, "mfu"),
    "power": (0.6, "power"),
    "rack_power": (0.5, "rack power"),
    "scale_out_bandwidth": (8.0, "network"),
    "capex": (0.5, "capital"),
    "run_cost": (0.3, "run cost"),
    "energy": (0.3, "energy"),
    "parameters": (1.4, "parameters"),
}


@cache
def sound(at):
    """A blueprint of one of the machines with what the model says of it, stated with a little room."""
    workload, chip, chips, plan, cooling = MACHINES[at % len(MACHINES)]
    run = catalog.training_run(workload, global_batch=1024, tokens=2e12)
    cluster = catalog.cluster(chip, chips, cooling=cooling)
    settings: dict[str, Any] = catalog.parse_plan(plan + ",virtual_stages=1,micro_batch=1")
    settings |= {name: value for name, value in (("recompute", "none"),) if name not in settings}
    report = evaluate_in_numpy(estimate, run, cluster, catalog.plan(run, chips, **settings))
    assert bool(report.feasible)
    entry, rack = catalog.record("chips", chip), float(cluster.rack.chips)
    batch = 1024 * float(run.sequence_length)
    words = ",".join(f"{name}={value}" for name, value in settings.items())
    return {
        "workload": workload, "chip": chip, "cooling": cooling, "plan": words, "precision": "bf16",
        "parameters": float(report.parameters), "tokens": 2e12, "global_batch": 1024, "sequence_length": float(run.sequence_length),
        "steps": round(2e12 / batch), "chips": chips, "racks": math.ceil(chips / rack), "rack_chips": rack,
        "rack_power": f"{1.03 * float(report.rack_power_w)} W", "power": f"{1.03 * float(report.peak_power_w)} W",
        "chip_memory": f"{entry.si('memory_capacity')} B", "peak": f"{entry.si('peak.bf16')} FLOP/s",
        "scale_out_bandwidth": f"{entry.si('scale_out_bandwidth')} B/s", "time": f"{1.03 * float(report.run_time_s)} s",
        "mfu": 0.99 * float(report.mfu), "run_cost": f"{1.03 * float(report.run_cost_usd)} $",
        "capex": f"{1.03 * float(report.capex_usd)} $", "energy": f"{1.03 * float(report.run_energy_j)} J",
    }  # fmt: skip


def scaled(value, factor):
    """A stated number, made wrong."""
    if isinstance(value, str):
        number, _, unit = value.partition(" ")
        return f"{factor * float(number)} {unit}"
    return math.ceil(factor * value) if isinstance(value, int) else factor * value


def failing(check):
    return {line.name for line in check.lines if line.verdict is CheckVerdict.fails}


@pytest.mark.parametrize("at", range(10))
def test_every_planted_error_is_found_and_no_sound_line_fails(at):
    checker, blueprint = _Checker(), sound(at)
    b = blueprint_of(blueprint)
    lines = checker.lines(b)
    assert [line.name for line in lines if line.verdict is not CheckVerdict.holds] == []
    rng = np.random.default_rng(at)
    planted = list(rng.choice(sorted(PLANTED), size=1 + at % 4, replace=False))
    wrong = dict(blueprint)
    for key in planted:
        wrong[key] = scaled(blueprint[key], PLANTED[key][0])
    lines = checker.lines(blueprint_of(wrong))
    bad = [line for line in lines if line.verdict is CheckVerdict.fails]
    assert {PLANTED[key][1] for key in planted} <= {line.name for line in bad}
    for line in bad:
        assert set(line.keys) & set(planted), f"{line.name} is said to fail: {line.why}"
        assert line.repairs, line.name


def test_single_and_joint_repairs_mend_what_they_say():
    wrong = sound(0) | {"racks": 40, "power": "100 kW", "mfu": 0.9}
    check = hwopt.check(wrong)
    assert {"racks", "power", "mfu"} <= failing(check) and not check.holds and "fails" in repr(check)
    checker = _Checker()
    for line in check.failing:
        for repair in line.repairs:
            mended = checker.lines(check.blueprint.with_number(repair.key, repair.after))
            assert next(each for each in mended if each.name == line.name).verdict is CheckVerdict.holds, (
                line.name,
                repair,
            )
    moved = check.blueprint
    assert check.joint is not None
    for each in check.joint.changes:
        moved = moved.with_number(each.key, each.after)
    assert [line.name for line in checker.lines(moved) if line.verdict is CheckVerdict.fails] == []
    assert check.joint.change <= sum(line.by_size[0].change + 0.1 for line in check.failing if line.by_size) + 1e-9


def test_more_chips_are_the_repair_of_a_run_that_is_late():
    late = {key: sound(0)[key] for key in ("workload", "chip", "plan", "tokens", "global_batch", "chips", "time")}
    late["time"] = scaled(late["time"], 0.5)
    check = hwopt.check(late)
    (line,) = check.failing
    chips = next(each for each in line.repairs if each.key == "chips")
    assert 1.8 * late["chips"] < chips.after < 3.0 * late["chips"] and chips.after % 2 == 0
    checker = _Checker()

    def verdict(count):
        moved = check.blueprint.with_number("chips", count)
        return next(each for each in checker.lines(moved) if each.name == "time")

    ours = verdict(chips.after).ours
    assert ours is not None and line.stated is not None and ours <= line.stated


@pytest.mark.parametrize("name", catalog.names("blueprints"))
def test_shipped_blueprints_are_sourced(name):
    record = catalog.record("blueprints", name)
    assert record.quantities and all(record.citation(key) for key in record.quantities)
    assert blueprint_of(name).title == record.title


def test_what_nobody_states_is_said_to_be_missing():
    check = hwopt.check({"time": "30d", "mfu": "40%", "power": "2MW"})
    assert {line.verdict for line in check.lines} == {CheckVerdict.unjudged}
    assert all(line.why for line in check.lines) and check.holds and check.joint is None
    leak = hwopt.check("gpt-4-reports")
    assert next(line for line in leak.lines if line.name == "arithmetic of MFU").verdict is CheckVerdict.holds
    assert "never published" in next(line for line in leak.lines if line.name == "time").why


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({}, "states no number"),
        ({"chips": 0}, "above zero"),
        ({"chips": 3.5}, "must be an integer"),
        ({"chps": 3}, "did you mean 'chips'"),
        ({"chips": 8, "chip": "h1000"}, "unknown name 'h1000'"),
        ({"chips": 8, "mfu": 41}, "must not exceed 1"),
        ({"chips": 8, "time": 30}, "must be a table"),
        ({"chips": 8, "time": "30 MW"}, "is not a unit of this quantity"),
        ({"chips": 8, "plan": "tpp=8"}, "unknown name 'tpp'"),
        ({"chips": 8, "plan": "tp=8"}, "state its workload"),
        ({"chips": 8, "chip": "a100-80", "precision": "fp8"}, "does not compute in fp8"),
        ({"chips": 8, "pue": 0.9}, "at least 1"),
    ],
)
def test_bad_blueprints_are_refused(stated, said):
    with pytest.raises(UserError, match=said):
        hwopt.check(stated)


def test_all_errors_of_a_blueprint_are_said_at_once():
    with pytest.raises(UserError) as caught:
        hwopt.check({"chps": 3, "time": "30 MW", "mfo": 1})
    assert len(caught.value.lines) == 3


@pytest.mark.parametrize(
    ("relation", "stated", "ours", "ends", "holds"),
    [
        (CheckRelation.at_most, 10.0, 9.0, None, True),
        (CheckRelation.at_most, 10.0, 11.0, None, False),
        (CheckRelation.at_most, 10.0, 11.0, (9.5, 12.0), True),
        (CheckRelation.at_most, 10.0, 11.0, (10.5, 12.0), False),
        (CheckRelation.at_least, 10.0, 9.0, (8.0, 9.9), False),
        (CheckRelation.at_least, 10.0, 9.0, (8.0, 10.1), True),
        (CheckRelation.equal, 10.0, 10.05, None, False),
        (CheckRelation.equal, 10.0, 10.0, None, True),
    ],
)
def test_a_line_fails_where_no_value_of_its_interval_agrees(relation, stated, ours, ends, holds):
    line = checked_line("x", "x", relation, stated, ours, "W", ends=ends)
    assert (line.verdict is CheckVerdict.holds) is holds


def test_screen_json_and_page_say_the_same():
    check = hwopt.check(sound(0) | {"capex": "1 M$", "mfu": 0.9})
    answer = check_answer(check)
    screen, document, page = answer.screen(), answer.document(), answer.page("hwopt check x.toml")
    for line in check.lines:
        assert line.name in screen and line.name in page
    assert document["counts"]["fails"] == screen.count(" FAILS ") == 2
    assert "2 checks fail" in page and summary(check) in page
    assert {each["number"] for each in document["joint_repair"]["changes"]} == {"capex", "mfu"}
    assert all(len(line) <= 120 for line in screen.splitlines())


def test_every_number_of_a_blueprint_has_a_meaning():
    assert all(each.meaning for each in QUANTITIES.values())

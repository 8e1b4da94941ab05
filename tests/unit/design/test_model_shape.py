"""Models whose shape is free: widths of whole heads and tiles, and what grows with them."""

from __future__ import annotations

import numpy as np
import pytest

import hwopt
from hwopt import catalog
from hwopt.design.lattices import lattice_of, reason_without_lattice
from hwopt.design.model_shape import ASPECTS, width
from hwopt.design.variables import KNOWN

STEPS = {"llama3.1-405b": 2048, "gpt3-175b": 2048, "llama3.1-8b": 2048, "deepseek-v3": 2688}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_is_of_whole_tiles_and_whole_groups_of_heads(name):
    model = catalog.training_run(name).model
    step = width(model).step
    heads = step * float(model.heads) / float(model.hidden)
    assert step == STEPS[name] and step % 128 == 0 and heads == pytest.approx(round(heads), abs=1e-9)
    if float(model.kv_rank) == 0.0 and model.kv_heads < model.heads:
        assert round(heads) % round(float(model.kv_heads)) == 0


def test_keys_and_values_grow_with_the_width_where_every_head_has_its_own():
    for name, grows in (("gpt3-175b", True), ("llama3.1-405b", False)):
        problem = hwopt.objective("loss_under_budget", workload=name).problem()
        before = problem.template.workload.model
        after = KNOWN["hidden"].place.put(problem.template, np.float64(2.0 * before.hidden)).workload.model
        assert after.heads == 2 * before.heads and after.ffn == 2 * before.ffn and after.qk_dim == before.qk_dim
        assert after.kv_heads == (2 if grows else 1) * before.kv_heads


def test_width_and_layers_are_coordinates_whose_heads_are_shared_out_evenly():
    problem = hwopt.objective("loss_under_budget").problem()
    lattice = lattice_of(problem)
    assert reason_without_lattice(problem) == "" and {"layers", "width_steps"} <= set(lattice.names)
    point = np.array([each.ends[0] for each in lattice.coordinates], np.int64)
    point[lattice.at["width_steps"]], point[lattice.at["layers"]] = 3, 48
    assert lattice.design(point)["hidden"] == 6144  # 48 heads
    assert lattice.by_name["layers"].ends == (8, 256)
    for tp, divides in ((16, True), (32, False)):
        point[lattice.at["tp"]] = tp
        held = [
            each.holds(lattice.columns(point[None].astype(float)))
            for each in lattice.relations
            if "width_steps" in each.names
        ]
        assert bool(np.all(held)) is divides


def test_all_models_of_the_catalogue_are_of_the_proportions_that_are_searched():
    records = [catalog.record("workloads", name) for name in catalog.names("workloads")]
    entries = [each for each in records if not each.operators]
    aspects = [
        each.si("hidden") / each.si("layers") for each in entries if {"hidden", "layers"} <= set(each.quantities)
    ]
    assert ASPECTS[0] <= min(aspects) < 1.1 * ASPECTS[0] and 0.95 * ASPECTS[1] < max(aspects) <= ASPECTS[1]

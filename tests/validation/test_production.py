"""Long runs against benchmarks: the factor comes from other runs than Llama 3's, and foretells that one."""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

import hwopt
from hwopt import catalog
from hwopt.design.lattices import lattice_of
from hwopt.model.chip import chip_project
from hwopt.model.training.schedule import production_fraction
from hwopt.workload.transformer import splits_heads, splits_tiles, tensor_degrees
from results.benchmarks.production import inputs, rows, run_of, straggler_sigma
from tests.cases import replace
from tests.reference.plain.extremes import largest_of

CHIPS = (16384, 32768, 65536, 131072, 262144)


@pytest.fixture(scope="module")
def runs():
    return {row["id"]: run_of(row) for row in rows()}


def test_the_sigma_is_that_of_the_runs_not_held_out(runs):
    usual = catalog.operation()
    fitted = straggler_sigma(list(runs.values()), float(usual.stall_fraction))
    assert float(usual.straggler_sigma) == pytest.approx(fitted, abs=0.0015)
    without = [each for each in runs.values() if not each.row["held_out"]]
    assert len(without) == len(runs) - 1
    assert straggler_sigma(without, float(usual.stall_fraction)) == fitted


def test_every_published_run_is_slower_than_its_benchmark(runs):
    """By 0.3 % on BLOOM's 384 chips, by 6 to 27 % on thousands."""
    assert all(each.excess > (0.0 if each.row["id"] == "bloom-384" else 0.05) for each in runs.values())


def test_llama_3_on_16384_chips_within_a_tenth_of_400_tflops(runs):
    assert float(runs["llama3-16384"].production.model_flops_per_chip_per_s) == pytest.approx(400e12, rel=0.1)


def test_runs_that_were_fitted_are_within_a_seventh(runs):
    assert all(float(each.production.step_time_s) == pytest.approx(each.step_s, rel=1 / 7) for each in runs.values())


def test_utilisation_falls_with_chips():
    row = next(row for row in rows() if row["held_out"])
    mfu = [float(hwopt.estimate(*inputs(row, chips)).mfu) for chips in CHIPS]
    assert all(more < fewer for fewer, more in itertools.pairwise(mfu))
    assert mfu[-1] < 0.985 * mfu[0]


def test_production_is_its_own_part_of_a_step():
    row = next(row for row in rows() if row["held_out"])
    workload, cluster, plan = inputs(row)
    report = hwopt.estimate(workload, cluster, plan)
    parts = report.breakdown
    together = sum(float(part) for part in parts)
    assert together == pytest.approx(float(report.step_time_s), rel=1e-6)
    operation = cluster.operation
    share = float(operation.stall_fraction) + float(operation.straggler_sigma) * largest_of(16384.0)
    before = together - float(parts.jitter_s) - float(parts.production_s) - float(parts.overhead_s)
    assert float(parts.production_s) == pytest.approx(share * before, rel=1e-5)


def test_benchmarks_have_none_and_links_without_tails():
    row = next(row for row in rows() if row["held_out"])
    workload, cluster, plan = inputs(row, operation=catalog.BENCHMARK)
    assert float(hwopt.estimate(workload, cluster, plan).breakdown.production_s) == 0.0
    assert not np.any(cluster.network.latency_tail_s) and not np.any(cluster.network.bandwidth_spread)
    usual = inputs(row)[1].network
    assert (np.asarray(usual.latency_tail_s)[1:] > 0).all() and (np.asarray(usual.bandwidth_spread)[1:] > 0).all()
    assert usual.latency_tail_s[0] == 0.0
    asked = inputs(row, latency_tail_s=0.0, bandwidth_spread=0.0)[1].network
    assert not np.any(asked.latency_tail_s) and not np.any(asked.bandwidth_spread)
    fastest = inputs(row, constants=catalog.SPEED_OF_LIGHT)[1].operation
    assert float(fastest.straggler_sigma) == float(fastest.stall_fraction) == 0.0


def test_the_slope_in_chips_is_that_of_finite_differences():
    operation = replace(catalog.operation(), straggler_sigma=0.05)
    at = lambda chips: float(production_fraction(operation, jnp.asarray(chips)))
    assert at(1.0) == pytest.approx(float(operation.stall_fraction))
    assert (at(2e5) - at(1e5)) / 0.05 == pytest.approx(largest_of(2e5) - largest_of(1e5), rel=1e-3)


def test_tensor_parallelism_gives_ranks_whole_heads_and_tiles():
    shape = replace(catalog.transformer("llama3.1-405b"), heads=96.0, kv_heads=8.0)
    assert tensor_degrees(shape) == [1, 2, 4, 8, 16, 32]  # 24, 48 and 96 split heads, not 53,248 columns
    assert not any(splits_heads(shape, t) for t in (3, 6, 12, 5))
    assert all(splits_heads(shape, t) for t in (1, 2, 4, 8, 16, 24, 48))
    assert splits_heads(replace(shape, kv_rank=512.0), 12)  # latent attention copies its latent, not heads
    narrow = replace(shape, ffn=8.0 * 16)
    assert splits_tiles(narrow, 16) and not splits_tiles(narrow, 32)
    assert splits_tiles(replace(shape, ffn=8.0 * 16 + 1.0), 32)  # no whole tiles to begin with


def test_interleaved_plans_are_taken_as_stated_and_searched_in_whole_rounds():
    run = catalog.training_run("llama3.1-405b", global_batch=252)
    assert catalog.plan(run, 576, tp=8, pp=9, cp=2, dp=4, virtual_stages=7) is not None  # 63 micro-batches, 7 rounds
    assert catalog.plan(run, 512, tp=8, pp=16, dp=4, virtual_stages=8) is not None  # newer software runs the rest too
    lattice = lattice_of(hwopt.objective("train_cost").problem())
    point = {each.name: each.ends[0] for each in lattice.coordinates} | {
        "pp": 16,
        "virtual_stages": 8,
        "chips_per_rack": 8,
    }
    rounds = {n: point | {"tp": 8, "dp": 64, "micro_batches": n, "groups": 1, "nics_per_server": 8} for n in (32, 31)}
    found = {n: bool(lattice.valid(lattice.point(each)[None])[0]) for n, each in rounds.items()}
    assert found == {32: True, 31: False}


@pytest.mark.parametrize(
    "name", ["a100-80", "b200", "h100-sxm", "h200", "mi250x", "mi300x", "mi355x", "tpu-v4", "v100"]
)
def test_public_packages_are_made(name):
    assert float(chip_project.margins(catalog.chip_project(name))["package"]) > 0.0


def test_four_full_dies_of_2023_have_no_interposer():
    base = catalog.chip_project("h100-sxm")
    four = replace(base, design__dies=4.0, design__hbm_stacks=7.0, design__compute_area_m2=4 * 5.5e-4)
    margins, area = chip_project.margins(four), float(chip_project.areas(four).interposer)
    limit = float(four.technology.package_limit_m2)
    assert float(margins["reticle"]) > 0.0 > float(margins["package"])
    assert float(margins["package"]) == pytest.approx(np.log(limit / area))

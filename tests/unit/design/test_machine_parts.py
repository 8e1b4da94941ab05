"""Machines in whole units: what questions vary, what stays as it is sold, and that every point of a lattice can be bought."""

import numpy as np
import pytest

import hwopt
from hwopt import catalog
from hwopt.design.lattices import lattice_of
from hwopt.design.problem import set_variables
from hwopt.errors import UserError
from hwopt.integers.enumeration import enumerate_points
from hwopt.model.estimate import estimate
from tests.rotation import rotated

BOUGHT = {"clock_ratio", "hbm_stacks", "scale_up_domain", "scale_up_lanes", "nics_per_server", "chips_per_rack"}


def bought(objective):
    return {each.name for each in objective.problem().variables} & BOUGHT


def test_a_chip_as_sold_keeps_its_memory_links_and_domain():
    assert bought(hwopt.objective("train_cost")) == {"clock_ratio", "nics_per_server", "chips_per_rack"}
    problem = hwopt.objective("train_cost").problem()
    sold = catalog.chip("h100-sxm")
    assert float(problem.template.cluster.chip.power_cap_w) == float(sold.power_cap_w)
    clock = next(each for each in problem.variables if each.name == "clock_ratio")
    assert clock.upper == 1.0


@pytest.mark.parametrize(
    "free, more", [("hbm", "hbm_stacks"), ("links", "scale_up_lanes"), ("domain", "scale_up_domain")]
)
def test_what_is_free_is_a_variable_in_whole_parts(free, more):
    problem = hwopt.objective("train_cost", free=free).problem()
    (own,) = [each for each in problem.variables if each.name == more]
    assert own.integer
    assert bought(hwopt.objective("train_cost", free=free)) == {
        "clock_ratio",
        "nics_per_server",
        "chips_per_rack",
        more,
    }


def test_all_is_all_and_another_word_is_refused():
    assert bought(hwopt.objective("train_cost", free="all")) == BOUGHT
    assert bought(hwopt.objective("train_cost", free="hbm+links+domain+clock")) == BOUGHT
    with pytest.raises(UserError, match="hbm"):
        hwopt.objective("train_cost", free="hmb").problem()


def test_variables_of_continuous_hardware_are_refused_with_what_frees_them():
    problem = hwopt.objective("train_cost").problem()
    with pytest.raises(UserError, match="--free"):
        problem.narrowed({"hbm_bandwidth_bytes_per_s": (2e12, 3e12)})
    with pytest.raises(UserError, match="--free"):
        problem.frozen(["scale_out_bandwidth_bytes_per_s"])
    assert problem.frozen(["chip"]).continuous.variables != problem.continuous.variables


@pytest.mark.parametrize(
    "chip",
    rotated([each for each in catalog.names("chips") if "unsupported" not in catalog.record("chips", each).text], 4),
)
def test_a_chip_in_its_own_parts_is_the_chip_that_is_sold(chip):
    """Stacks, lanes and NICs as counted from the catalogue give back the memory, links and NICs of the data sheet."""
    try:
        problem = hwopt.objective("train_cost", chip=chip, free="all", stack=catalog.default_stack(chip)).problem()
    except UserError as reason:  # no bf16 units
        pytest.skip(str(reason))
    before = problem.template.cluster
    values = []
    for each in problem.variables:
        own = float(each.place.get(problem.template))
        values.append(own)
    built = set_variables(problem.form, problem.template, values).cluster
    for field in ("hbm_bandwidth_bytes_per_s", "hbm_capacity_bytes"):
        assert float(getattr(built.chip, field)) == pytest.approx(float(getattr(before.chip, field)))
    np.testing.assert_allclose(built.network.bandwidth_bytes_per_s, before.network.bandwidth_bytes_per_s, rtol=1e-6)


def test_every_point_of_the_lattice_is_servers_racks_and_domains():
    boxes = {"chips": (256, 384), "pp": (1, 4), "tp": (1, 8), "nics_per_server": (4, 8), "scale_up_domain": (8, 48)}
    boxes |= {"chips_per_rack": (8, 64), "hbm_stacks": (5, 5), "scale_up_lanes": (18, 18), "virtual_stages": (1, 1)}
    problem = hwopt.objective("train_cost", free="all", recompute="none", offload="none").problem().narrowed(boxes)
    lattice = lattice_of(problem)
    points = enumerate_points(lattice)
    whole = lattice.quantities_at(points)
    chips, rack, domain = whole["chips"], points["chips_per_rack"], whole["scale_up_domain"]
    assert len(chips) > 1000
    assert (chips % rack == 0).all() and (rack % 8 == 0).all() and (domain % 8 == 0).all()
    assert ((rack % domain == 0) | (domain % rack == 0)).all()
    assert {8.0, 16.0, 24.0, 48.0} <= set(map(float, domain))
    assert ((domain > rack) & (domain % rack == 0)).any()  # over whole racks too


def test_counts_of_parts_follow_from_the_machine():
    cluster = catalog.cluster("h100-sxm", 64)
    run = catalog.training_run("llama3.1-8b")
    report = estimate(run, cluster, catalog.plan(run, 64, tp=8))
    assert float(report.servers) == 8.0 and float(report.nics) == 64.0 and float(report.lanes) == 64.0 * 18.0

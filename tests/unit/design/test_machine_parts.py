"""Machines in whole units: what questions vary, what stays as it is sold, and that every point of a lattice can be bought."""

import equinox as eqx
import numpy as np
import pytest

import hwopt
from hwopt import catalog
from hwopt.design.choices import combinations, left_open
from hwopt.design.lattices import lattice_of
from hwopt.design.problem import set_variables
from hwopt.errors import UserError
from hwopt.integers.enumeration import enumerate_points
from hwopt.model.estimate import estimate
from hwopt.model.network.route import members_per_tier
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


@pytest.mark.parametrize(
    ("chip", "nics", "racks", "unit"),
    [("h100-sxm", 8, (8, 32), 8), ("gb200", 4, (64, 72), 8), ("rubin", 8, (64, 72), 8), ("tpu-v7", 4, (64, 64), 64),
     ("tpu-v5e", 2, (64, 64), 256), ("trainium3", 8, (72, 72), 144)],
)  # fmt: skip
def test_nics_and_racks_are_those_of_the_system(chip, nics, racks, unit):
    problem = hwopt.objective("train_cost", chip=chip).problem()
    known = {each.name: each for each in problem.variables}
    assert (known["nics_per_server"].lower, known["nics_per_server"].upper) == (nics, nics)
    assert (known["chips_per_rack"].lower, known["chips_per_rack"].upper) == racks
    sold = problem.template.cluster.network.bandwidth_bytes_per_s[1]
    assert float(sold) == catalog.record("chips", chip).si("scale_out_bandwidth")
    few = {
        "chips": (max(unit, 64), 1024),
        "tp": (1, 8),
        **dict.fromkeys(("cp", "pp", "virtual_stages", "micro_batch", "zero"), (1, 1)),
    }
    lattice = lattice_of(problem.narrowed({name: tuple(map(float, ends)) for name, ends in few.items()}))
    points = enumerate_points(lattice)
    chips = lattice.quantities_at(points)["chips"]
    assert len(chips) and (chips % unit == 0).all()
    assert (chips % points["chips_per_rack"] == 0).all()
    used = catalog.used_chips(catalog.system_of(chip))
    assert not used or {*points["chips_per_rack"]} == {*used}


def test_a_domain_has_the_used_chips_of_its_rack():
    problem = hwopt.objective("train_cost", chip="gb200").problem()
    few = {
        "chips": (1024, 1152),
        "tp": (1, 64),
        "pp": (1, 1),
        "virtual_stages": (1, 1),
        "micro_batch": (1, 1),
        "cp": (1, 1),
    }
    points = enumerate_points(
        lattice_of(problem.narrowed({name: tuple(map(float, ends)) for name, ends in few.items()}))
    )
    assert (points["chips_per_rack"] % points["tp"] == 0).all()
    assert {*points["tp"][points["chips_per_rack"] == 64]} == {1, 2, 4, 8, 16, 32, 64}
    assert {*points["tp"][points["chips_per_rack"] == 72]} <= {1, 2, 4, 8}
    (racks,) = (each for each in problem.variables if each.name == "chips_per_rack")
    cluster = racks.place.put(problem.template, np.float64(64.0)).cluster
    assert (float(cluster.rack.chips), float(cluster.network.size[0]), float(cluster.rack.sold_chips)) == (
        64.0,
        64.0,
        72.0,
    )
    assert float(problem.continuous.template.cluster.rack.sold_chips) == 0.0


def test_free_opens_nics_and_racks_and_says_so():
    asked = hwopt.objective("train_cost", chip="gb200", free="nics+racks").problem()
    known = {each.name: each for each in asked.variables}
    assert known["nics_per_server"].lower < known["nics_per_server"].upper
    assert known["chips_per_rack"].lower == 1.0 and not known["chips_per_rack"].among
    assert float(asked.template.cluster.rack.system_chips) == 4.0
    assert "gb200, not a product: NICs per server and chips per rack are free" in asked.question
    assert "gb200 as sold" in hwopt.objective("train_cost", chip="gb200").problem().question
    assert "gb200 as sold" in hwopt.objective("train_cost", chip="gb200", free="storage").problem().question
    assert "gb200-class chips, all hardware free" in asked.continuous.question


def test_bounds_beside_what_is_sold_are_refused_with_the_flag_that_opens_them():
    problem = hwopt.objective("train_cost").problem()
    with pytest.raises(UserError, match="--free nics"):
        problem.narrowed({"nics_per_server": (4.0, 8.0)})
    with pytest.raises(UserError, match=r"sold with 8, 16, 24, 32 chips per rack; --free racks"):
        lattice_of(problem.narrowed({"chips_per_rack": (17.0, 23.0)}))


def test_counts_of_parts_follow_from_the_machine():
    cluster = catalog.cluster("h100-sxm", 64)
    run = catalog.training_run("llama3.1-8b")
    report = estimate(run, cluster, catalog.plan(run, 64, tp=8))
    assert float(report.servers) == 8.0 and float(report.nics) == 64.0 and float(report.lanes) == 64.0 * 18.0


@pytest.mark.parametrize(
    ("fields", "ways"),
    [
        ({"free": "hbm"}, ["hbm", "stock"]),
        ({"free": "links+clock"}, ["links+clock", "stock+clock"]),
        ({"free": "all"}, ["all", "stock+domain+clock+storage+nics+racks"]),
        ({"free": "hbm+batch"}, ["hbm+batch", "stock+batch"]),
        ({"free": "hbm", "memory": "hbm4"}, ["hbm", "stock"]),
        ({"free": "nics+racks"}, None),
        ({"free": "stock"}, None),
        ({"free": "hbm", "design": "h100-sxm"}, None),
        ({}, None),
    ],
)
def test_the_stock_chip_is_a_candidate_beside_its_redesign(fields, ways):
    """It is the question without `free`: no development cost, no minimum order, its own memory."""
    question = hwopt.objective("train_cost", **fields)
    assert question.left_open() == ({} if ways is None else {"free": ways})
    if ways is None:
        return
    redesign, stock = (each.objective.problem() for each in combinations(question, {}, 8))
    rest = {name: value for name, value in fields.items() if name != "memory"}
    plain = hwopt.objective("train_cost", **rest | {"free": ways[1].removeprefix("stock").lstrip("+") or "none"})
    assert eqx.tree_equal(stock.template, plain.problem().template)
    assert (
        float(stock.template.cluster.prices.redesign_usd) == 0.0 < float(redesign.template.cluster.prices.redesign_usd)
    )
    assert stock.variables == plain.problem().variables and "memory stacks" not in stock.question


def test_an_explicit_choice_of_free_components_is_kept():
    question = hwopt.objective("train_cost", free="hbm")
    asked = combinations(question, {"free": ["hbm", "links"]}, 8)
    assert [each.chosen for each in asked] == [(("free", "hbm"),), (("free", "links"),)]


@pytest.mark.search
@pytest.mark.parametrize("free", ["hbm", "links"])
def test_a_redesign_is_never_worse_than_the_stock_chip(free):
    fields = {"workload": "llama3.1-8b", "time_budget_s": 60 * 86400.0, "plan": "tp=1,pp=1,cp=1"}
    found = hwopt.optimize(hwopt.objective("train_cost", free=free, **fields))
    plain = hwopt.optimize(hwopt.objective("train_cost", **fields))
    assert found.objective <= plain.objective * (1.0 + 2e-4)
    assert found.chosen["free"] == "stock" and {dict(each.chosen)["free"] for each in found.choices} == {free, "stock"}


def _tori(**fields):
    return hwopt.objective("train_cost", workload="llama3.1-8b", **fields)


def test_a_torus_is_a_whole_number_of_slices():
    few = {"chips": (64.0, 1024.0), "tp": (1.0, 32.0)}
    few |= dict.fromkeys(("cp", "pp", "virtual_stages", "micro_batch", "zero"), (1.0, 1.0))
    for chip, shape, size in (("tpu-v6e", "8x16", 128), ("tpu-v5p", "4x8x8", 256)):
        lattice = lattice_of(_tori(chip=chip, slice=shape).problem().narrowed(few))
        chips = lattice.quantities_at(enumerate_points(lattice))["chips"]
        assert len(chips) and (chips % size == 0).all()


def test_slices_are_chosen_by_the_search_unless_stated_or_free():
    racks = {"tpu-v6e": ["4x8", "8x8", "8x16", "16x16"], "tpu-v5e": ["8x8", "8x16", "16x16"]}
    for chip, shapes in racks.items():
        assert left_open(_tori(chip=chip)) == {"slice": shapes}
        assert left_open(_tori(chip=chip, slice="8x8")) == left_open(_tori(chip=chip, free="domain")) == {}
    assert left_open(_tori(chip="tpu-v6e", chips=192.0)) == {"slice": ["4x8", "8x8"]}
    assert left_open(_tori(chip="h100-sxm")) == left_open(hwopt.objective("train_and_serve", chip="tpu-v6e")) == {}
    whole = _tori(chip="tpu-v5p").problem()
    assert float(whole.template.cluster.network.size[0]) == 64.0
    assert float(whole.continuous.template.cluster.network.size[0]) == 8960.0
    for asked, complaint in (({}, "8x9"), ({"free": "domain"}, "remove it"), ({"chip": "h100-sxm"}, "has no slices")):
        with pytest.raises(UserError, match=complaint):
            _tori(**{"chip": "tpu-v6e", "slice": "8x9"} | asked).problem()
    with pytest.raises(UserError, match="slice = 8x8: train_and_serve"):
        hwopt.objective("train_and_serve", chip="tpu-v6e", slice="8x8").problem()


@pytest.mark.parametrize("used", [64, 72])
def test_groups_beyond_the_used_chips_leave_the_domain(used):
    """A group of 72 ranks fits into a rack of which jobs use 72 chips, not where they use 64."""
    network = catalog.cluster("gb200", 1024, used_chips=used).network
    inside, pods, _ = members_per_tier(network, np.float64(72.0), np.float64(1.0))
    assert (float(inside), float(pods)) == pytest.approx((used, 72.0 / used))

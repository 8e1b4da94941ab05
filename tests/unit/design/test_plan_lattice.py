"""Named relations of plans: the points that they leave are those that plain arithmetic leaves, in the same order."""

import itertools

import pytest

from hwopt import catalog
from hwopt.design.plan_lattice import Sizes, named, plan_points, plan_relations, spread_degrees


@pytest.mark.parametrize("sites", [1, 2])
def test_points_are_those_of_plain_arithmetic(sites):
    chips, batch, layers, experts = 24, 48, 6, 4
    values = {
        "tp": (1, 2, 4), "pp": range(1, layers + 3), "dp": range(1, chips + 1), "ep": (1, 2, 4), "virtual_stages": (1, 2, 3),
        "micro_batch": (1, 2), "micro_batches": range(1, batch + 1), "zero": (1, 2),
    }  # fmt: skip
    sizes = Sizes(named(*values), (chips, chips), (batch, batch), chunks=layers + 2, experts=experts, sites=sites)
    sizes = sizes._replace(software=catalog.stack("nemo-2024", any_software=True).capabilities)
    names = ("chips", "batch", "chunks", "interleaving", "rounds", "experts", "sites", "software")
    plain = [
        (t, p, d, e, v, b, batch // (d * b), z)
        for t, p, d, e, v, b, z in itertools.product(*(values[name] for name in values if name != "micro_batches"))
        if t * p * d == chips and batch % (d * b) == 0 and p * v <= layers + 2 and (v == 1 or p > 1)
        and (v == 1 or batch // (d * b) % p == 0) and t * d % (e * sites) == 0 and d % sites == 0 and (p == 1 or z == 1)
    ]  # fmt: skip
    found = plan_points(values, plan_relations(sizes, *names))
    assert plain and [tuple(each.values()) for each in found] == plain


def test_degrees_that_a_lattice_lacks_are_one():
    sizes = Sizes({"tp": "left_tp", "dp": "dp"}, (8.0, 8.0))
    (relation,) = plan_relations(sizes, "chips")
    assert relation.names == ("left_tp", "dp")
    assert plan_points({"left_tp": (1, 4), "dp": range(1, 9)}, [relation]) == [
        {"left_tp": 1, "dp": 8}, {"left_tp": 4, "dp": 2},
    ]  # fmt: skip


def test_redundant_experts_fill_any_rank_up_to_twice_as_many():
    assert spread_degrees(6, redundant=False) == [1, 2, 3, 6]
    assert spread_degrees(6, redundant=True, chips=30) == [1, 2, 3, 5, 6, 10]
    assert set(spread_degrees(6, redundant=True)) >= {1, 2, 3, 4, 5, 6, 8, 9, 10, 12}

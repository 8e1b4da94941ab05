"""Two kinds of chips that serve together equal the plain-Python model of them, and today's machine where both kinds are one."""

from __future__ import annotations

import jax
import numpy as np

from hwopt.hardware.cluster import ClusterPair
from hwopt.model.estimate import estimate
from tests.cases import KINDS, NO_SHELVES, count, replace, take
from tests.in_numpy import in_numpy
from tests.reference.plain.inputs import fields
from tests.reference.plain.serving_pair import estimate as plain_estimate
from tests.reference.test_against_numpy import assert_same
from tests.serving_cases import chips_of, serving_cases

ROWS = 24


def leaves(report) -> dict[str, np.ndarray]:
    """Leaves of a report by dotted name."""
    paths = jax.tree_util.tree_leaves_with_path(report)
    named = lambda part: str(getattr(part, "name", None) or part.key)
    return {".".join(map(named, path)): np.asarray(leaf) for path, leaf in paths}


def drawn(seed: int):
    """Services, pairs of clusters of different kinds at one site, and plans of two groups."""
    service, decode, plan = serving_cases(np.random.default_rng(seed), ROWS, KINDS[0], "disaggregated", headroom=True)
    _, prefill, _ = serving_cases(np.random.default_rng(seed + 1), ROWS, KINDS[2], "disaggregated")
    total = chips_of(plan)
    decode, prefill = (replace(each, chips=total, sites__count=1.0) for each in (decode, prefill))
    return service, ClusterPair(prefill=prefill, decode=decode), plan


def test_pairs_equal_the_reference():
    cases = drawn(300)
    actual = leaves(in_numpy(estimate)(*cases))
    rows = [plain_estimate(*map(fields, take(cases, i))) for i in range(count(cases))]
    expected = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    assert_same({name: actual[name] for name in expected}, expected)
    assert np.isfinite(expected["cost_per_token_usd"]).all()
    larger = actual["memory_capacity_bytes"] == cases[1].decode.chip.hbm_capacity_bytes
    assert 2 < larger.sum() < ROWS - 2  # the fullest chip is now of one kind, now of the other


def test_two_groups_of_one_kind_are_todays_machine():
    """Every leaf, where groups lie in several domains, without what each kind has of its own: spares, least orders, storage."""
    service, pair, plan = drawn(310)
    own = {"recovery__hot_spares": 0.0, "prices__least_order": 0.0, "prices__redesign_usd": 0.0}
    cluster = replace(pair.decode, **own, **NO_SHELVES)
    beyond = 2.0 * np.asarray(cluster.network.size)[:, 0] <= chips_of(plan)
    assert beyond.sum() > ROWS // 4
    one = leaves(in_numpy(estimate)(service, cluster, plan))
    two = leaves(in_numpy(estimate)(service, ClusterPair(prefill=cluster, decode=cluster), plan))
    for name, values in one.items():
        np.testing.assert_allclose(two[name][beyond], values[beyond], rtol=1e-12, err_msg=name)
    assert {name for name in two if name not in one} == {name for name in two if name.startswith("groups.")}
    slower = two["kv_transfer_s"][~beyond] > one["kv_transfer_s"][~beyond]
    assert (
        slower.mean() > 0.8
    )  # two kinds share no domain: keys and values take the NICs, which few machines have faster

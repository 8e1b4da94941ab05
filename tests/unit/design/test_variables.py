"""Where variables stand: what moves with them."""

from __future__ import annotations

from dataclasses import replace

import equinox as eqx
import jax
import pytest

import hwopt
from hwopt import catalog
from hwopt.design.lattices import scope_of
from hwopt.design.variables import KNOWN, RECOVERIES, Ranges
from hwopt.errors import UserError
from hwopt.model.training.learning import critical_batch_tokens
from hwopt.workload.transformer import total_parameters


@pytest.fixture(scope="module")
def template():
    return hwopt.objective("train_cost", free="hbm+links").problem().template


def test_serdes_draw_what_their_links_are(template):
    lanes, chip = KNOWN["scale_up_lanes"].place, template.cluster.chip
    with jax.enable_x64(True):
        half = lanes.put(template, 0.5 * lanes.get(template))
        again = lanes.put(half, lanes.get(template))
    rate = float(template.cluster.network.bandwidth_bytes_per_s[0])
    saved = float(chip.standby_power_w) - float(half.cluster.chip.standby_power_w)
    assert saved == pytest.approx(0.5 * rate * float(chip.scale_up_idle_j_per_byte), rel=1e-9) and saved > 1.0
    assert float(again.cluster.chip.standby_power_w) == pytest.approx(float(chip.standby_power_w), rel=1e-12)


def test_stacks_bring_their_bytes_and_their_rate(template):
    stacks, chip = KNOWN["hbm_stacks"].place, template.cluster.chip
    with jax.enable_x64(True):
        six = stacks.put(template, 6.0).cluster.chip
    assert float(six.hbm_capacity_bytes) == pytest.approx(1.2 * float(chip.hbm_capacity_bytes))
    assert float(six.hbm_bandwidth_bytes_per_s) == pytest.approx(1.2 * float(chip.hbm_bandwidth_bytes_per_s))


def test_other_stacks_on_a_sold_chip():
    sold, other = (
        hwopt.objective("train_cost", free="hbm", memory=memory).problem().template.cluster
        for memory in ("", "hbm3-12-high-6400")
    )
    assert float(other.chip.hbm_capacity_bytes) == 5 * 24e9
    assert float(other.chip.hbm_bandwidth_bytes_per_s) == 5 * 819e9
    assert float(other.chip.core_power_w) == float(sold.chip.core_power_w)
    assert float(other.prices.redesign_usd) == float(sold.prices.redesign_usd) == 4e7


def test_a_chip_as_sold_is_charged_no_redesign():
    prices = hwopt.objective("train_cost").problem().template.cluster.prices
    assert float(prices.redesign_usd) == float(prices.least_order) == 0.0


@pytest.mark.parametrize("names", [["scale_up_domain"], ["network"], ["chip", "network"]])
def test_freezing_keeps_what_the_machine_has_beyond_the_usual_box(names):
    """A torus of 8,960 chips as sold, where the question's own box ends at 576."""
    usual = hwopt.objective("train_cost", chip="tpu-v5p").problem().continuous
    problem = usual.frozen(names)
    box = {each.name: (each.lower, each.upper) for each in problem.variables}["scale_up_domain"]
    assert box == (8960.0, 8960.0) and KNOWN["scale_up_domain"].upper < 8960.0
    assert problem.narrowed({"scale_up_domain": box}).variables == problem.variables
    with pytest.raises(UserError, match=r"scale_up_domain.*reach beyond 8960:8960"):
        problem.narrowed({"scale_up_domain": (8.0, 64.0)})


def test_a_question_in_whole_parts_keeps_its_frozen_relaxation():
    asked = hwopt.objective("train_cost", chip="tpu-v5p", free="domain").problem()
    for problem in (asked.frozen(["scale_up_domain"]), asked.frozen(["scale_up_domain"]).continuous):
        assert {each.name: each.upper for each in problem.variables}["scale_up_domain"] == 8960.0


def test_a_memory_of_its_own_is_kept_as_sold():
    """Above the 432 GB of the usual box."""
    problem = hwopt.objective("train_cost", chip="rubin").problem().continuous
    large = eqx.tree_at(lambda d: d.cluster.chip.hbm_capacity_bytes, problem.template, 1e12)
    kept = replace(problem, template=large).frozen(["chip"])
    assert {each.name: each.lower for each in kept.variables}["hbm_capacity_bytes"] == pytest.approx(1e12)


def test_recovery_is_set_and_read_back_as_one_of_three():
    template = hwopt.objective("train_cost").problem().template
    known = KNOWN["recovery"]
    for value, name in enumerate(RECOVERIES, 1):
        made, entry = known.place.put(template, float(value)), catalog.recovery(name)
        assert float(known.place.get(made)) == value
        assert float(made.cluster.recovery.hot_spares) == float(entry.hot_spares)
        peers = float(entry.peer_bytes_per_s_per_chip)
        assert float(made.cluster.recovery.peer_bytes_per_s_per_chip) == pytest.approx(peers)
    for field in ("swap_s", "repair_s", "spare_deviations"):  # the template's serve all three
        assert len({float(getattr(catalog.recovery(name), field)) for name in RECOVERIES}) == 1


def test_a_named_recovery_is_kept_and_the_scope_says_so():
    open_, named = (hwopt.objective("train_cost", **how).problem() for how in ({}, {"recovery": "hot-spares"}))
    assert "recovery" in {each.name for each in open_.variables}
    assert "recovery" not in {each.name for each in named.variables}
    assert "recovery hot-spares" in scope_of(named)
    assert "batch near 2,048 sequences" in scope_of(named) and "gradients reduced in" in scope_of(named)


def test_a_free_batch_reaches_the_critical_one():
    kept, freed = (hwopt.objective("train_time", free=free).problem() for free in ("none", "batch"))
    box = lambda problem: next(each for each in problem.variables if each.name == "global_batch_sequences")
    run = kept.template.workload
    critical = float(
        critical_batch_tokens(run.law, total_parameters(run.model), run.tokens) / run.sequence_length
    )  # a dense model: its equivalent parameters are its own
    assert box(freed).upper == pytest.approx(critical, rel=1e-6) and box(freed).lower == box(kept).lower
    assert "batch near" not in scope_of(freed)
    assert {each.name for each in freed.variables} == {each.name for each in kept.variables}  # no hardware is freed
    with pytest.raises(UserError, match="no law states a critical batch of resnet-50"):
        hwopt.objective("train_time", workload="resnet-50", free="batch").problem()
    with pytest.raises(UserError, match="'batch'"):
        hwopt.objective("serve_cost", free="batch").problem()


def test_bounds_are_read_while_a_function_is_traced():
    """What a question keeps fixed is a number of its template, also inside of `jit`."""
    template = hwopt.objective("train_cost").problem().template
    ranges = Ranges({}, template)
    names = [name for name, each in KNOWN.items() if each.category in ("plan", "network", "facility", "size")]
    names = [name for name in names if "prefill" not in name and "slots" not in name and name != "cache_split"]
    seen = jax.jit(lambda: [ranges.of(name)[0] for name in names])()
    assert len(seen) == len(names) > 10

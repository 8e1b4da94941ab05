"""Twelve answers of the second edition that no architect would believe, and answers of today, by rules of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hwopt.cli import main
from tests.plausibility.rules import RULES, broken

AUDIT = {
    "b200": {"servers_have_their_nics", "software_offloads_in_a_pipeline"},
    "b200_8b": {"servers_have_their_nics"},
    "deepseek_gb200": {"servers_have_their_nics", "racks_are_sold", "first_tokens_are_in_time_at_p95"},
    "default": {"servers_have_their_nics", "software_offloads_in_a_pipeline"},
    "drawn": {"servers_have_their_nics", "dram_keeps_up", "host_memory_keeps_a_reserve", "software_streams_weights"},
    "gb200": {"servers_have_their_nics", "software_streams_weights"},
    "gb300_gw": {"servers_have_their_nics", "recovery_is_the_documented_best", "a_slow_clock_has_a_reason"},
    "h200": {"servers_have_their_nics"},
    "mi355x": {"servers_have_their_nics", "racks_are_sold"},
    "plan_8b": {"dram_keeps_up"},
    "serve_default": {"servers_have_their_nics", "first_tokens_are_in_time_at_p95"},
    "tpu_v7": {"racks_are_sold", "chips_fill_systems", "torus_is_a_slice"},
}
"""Answers of version 0.2, kept as they were, and rules that each must break."""

TODAY = (
    "optimize",
    "optimize serve_cost",
    "optimize --chip gb200",
    "optimize --workload llama3.1-8b --chip b200",
    "optimize train_time --chip gb300 --power-budget-w 1GW --capex-budget-usd none",
    "plan --workload llama3.1-8b --chip h100-sxm --chips 8",
    "optimize --workload llama3.1-8b --chip tpu-v6e --slice 8x8",
    "plan --workload llama3.1-8b --chip tpu-v6e --chips 64 --plan activations_offloaded=0",
)


def recorded(name: str) -> dict:
    return json.loads((Path(__file__).parent / "audit" / f"{name}.json").read_text())


def _on(chips: int) -> dict:
    """Return the plan of the audited TPU answer on another number of chips."""
    return recorded("tpu_v7")["plan"] | {"dp": chips // 2}


@pytest.mark.parametrize("name", AUDIT)
def test_the_answers_of_the_audit_are_rejected(name):
    assert AUDIT[name] <= set(broken(recorded(name)))


def test_a_changed_answer_breaks_the_rule_of_its_change():
    """Rules that no answer of the audit breaks: each by the smallest change to one that keeps it."""
    fast = recorded("default")
    fast["design"]["nics_per_server"]["value"] = 24.0
    assert "nics_are_within_the_host_link" in broken(fast) and "nics_are_within_the_host_link" not in broken(
        recorded("default")
    )
    roomy = recorded("default")
    roomy["report"]["memory_per_chip_bytes"] = 0.2 * roomy["report"]["memory_capacity_bytes"]
    assert "offload_is_needed" in broken(roomy)
    warm = recorded("gb200")
    warm["design"]["coolant_degc"] = {"value": 46.0}
    assert "coolant_is_in_range" in broken(warm) and "coolant_is_in_range" not in broken(recorded("gb200"))
    torus = recorded("tpu_v7")
    torus["design"]["scale_up_domain"] = {"value": 4248.0, "upper": 9216.0}
    assert "torus_is_a_slice" in broken(torus)
    sold = {"count": 59, "chips_each": 72, "slice": "4x4x4"}
    for shape, chips in (("4x4x6", 4224), ("4x4x4", 4248), ("16x16x16", 4224)):
        assert "torus_is_a_slice" in broken(
            recorded("tpu_v7") | {"systems": [sold | {"slice": shape}], "plan": _on(chips)}
        )
    assert "torus_is_a_slice" not in broken(recorded("tpu_v7") | {"systems": [sold], "plan": _on(4224)})
    idle = recorded("gb300_gw")
    idle["design"]["global_batch_sequences"]["upper"] = 16384.0
    assert "something_limits_the_time" in broken(idle)
    unpaid = recorded("gb200")
    unpaid["systems"] = [{"count": 22, "chips_each": 72, "used_each": 64}]
    assert "idle_chips_are_bought" in broken(unpaid)
    tested = {
        *set().union(*AUDIT.values()),
        *broken(fast),
        *broken(roomy),
        *broken(warm),
        *broken(torus),
        *broken(idle),
        *broken(unpaid),
    }
    assert tested == set(RULES)


@pytest.mark.search
@pytest.mark.parametrize("line", TODAY)
def test_answers_of_today_break_no_rule(line, capsys):
    code = main([*line.split(), "--json"])
    assert code == 0
    assert broken(json.loads(capsys.readouterr().out)) == []

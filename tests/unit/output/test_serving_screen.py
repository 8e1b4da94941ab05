"""Screens of a service: one price per token, latencies of one load, chips and replicas in the design."""

from __future__ import annotations

import functools
from typing import Any

import pytest

import hwopt
from hwopt.output.answers.optimum import solution_answer

QUESTIONS: dict[str, dict[str, Any]] = {
    "dense": {},
    "experts": {"workload": "gpt-oss-120b", "chip": "h200", "requests_per_s": 200.0},
    "disaggregated": {"workload": "llama3.1-8b", "split": "disaggregated", "requests_per_s": 50.0},
}


@functools.cache
def solved(name: str):
    return hwopt.optimize(hwopt.objective("serve_cost", **QUESTIONS[name]))  # pyright: ignore


@pytest.mark.search
@pytest.mark.parametrize("name", QUESTIONS)
def test_the_objective_is_the_price_of_every_line_and_pays_for_the_cluster(name):
    solution = solved(name)
    report, answer = solution.report, solution_answer(solution)
    price = f"{1e6 * float(report.cost_per_token_usd):.4g} $ per million output tokens, input included"
    screen = " ".join(answer.screen().split())
    assert solution.feasible and float(report.cost_per_token_usd) == pytest.approx(solution.objective, rel=1e-9)
    assert answer.document()["objective"]["value"] == pytest.approx(float(report.cost_per_token_usd), rel=1e-9)
    assert f"Cost per token: {price}" in screen and f"price {price}" in screen
    service = solution.built.workload
    said = answer.document()["report"]
    listed = [said[f"usd_per_million_{of}_tokens"] for of in ("input", "output")]
    paid = float(service.new_tokens) * listed[0] + float(service.output_tokens) * listed[1]
    assert paid == pytest.approx(1e6 * solution.objective * float(service.output_tokens), rel=1e-9)
    cluster_usd_per_s = float(report.chip_usd_per_s) * float(solution.built.cluster.chips)
    earned = solution.objective * float(report.tokens_per_s) * float(report.goodput)
    assert earned == pytest.approx(cluster_usd_per_s, rel=1e-9)


@pytest.mark.search
@pytest.mark.parametrize("name", QUESTIONS)
def test_latencies_are_of_one_load_and_the_design_names_chips_and_replicas(name):
    solution = solved(name)
    report, screen = solution.report, " ".join(solution_answer(solution).screen().split())
    for latency in ("time_to_first_token", "time_per_output_token"):
        mean, p50, p95, p99 = (float(getattr(report, f"{latency}{level}_s")) for level in ("", "_p50", "_p95", "_p99"))
        assert 0.0 < p50 <= p95 <= p99 and mean <= p99
    assert f"{100 * float(report.busiest_load):.3g} % of capacity in every hour alike" in screen
    plan, chips = solution.built.plan, float(solution.built.cluster.chips)
    replicas = plan.decode.dp if plan.disaggregated else plan.dp
    assert f"chips {chips:,.0f} {QUESTIONS[name].get('chip', 'h100-sxm')}: " in screen
    of = "decode " if plan.disaggregated else ""
    assert f"{of}{float(replicas):,.0f} replicas of" in screen and "tpot_budget_s 30 ms at full batch" in screen

"""Budgets of the default question under which the design that tests know by its integers is a good one."""

LARGE_RUN = {"time_budget_s": 86 * 86400.0, "power_budget_w": 28.5e6, "capex_budget_usd": 0.85e9}
"""Llama-3.1-405B in 86 days on 16,384 chips of continuous hardware: tp 16, pp 8, 16 chunks a stage."""

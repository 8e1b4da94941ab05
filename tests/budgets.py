"""Budgets of the default question under which the designs that tests know by their integers are good ones."""

LARGE_RUN = {"time_budget_s": 41 * 86400.0, "power_budget_w": 45.4e6, "capex_budget_usd": 1.45e9}
"""Llama-3.1-405B in 41 days on 29,000 chips: 40 MW over the year's mean, 45.4 on the design day."""

"""Several workloads on the same parts: subproblems of the members, master search over parts, allocation of joint budgets."""

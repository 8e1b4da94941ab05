"""Several workloads on the same parts: subproblems, master search, budget allocation."""

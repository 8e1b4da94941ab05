"""Primal heuristics: evolutionary search, rounding, feasibility repair."""

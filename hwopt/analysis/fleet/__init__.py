"""Optimal workload split and plans of a fleet with several chip generations."""

"""Collectives and routes over nested tiers, switch counts, several sites."""

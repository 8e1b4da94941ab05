"""Heterogeneous fleets: groups of different chips that train one model together."""

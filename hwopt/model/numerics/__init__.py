"""Exact and smooth maxima, and differentiable roots of equations."""

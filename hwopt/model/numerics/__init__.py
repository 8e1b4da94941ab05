"""Numerics of the model: exact and smooth maxima, and differentiable roots of equations."""

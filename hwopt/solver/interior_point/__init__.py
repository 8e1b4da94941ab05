"""Primal-dual interior point method for batches of convex programs of one sparsity pattern."""

"""Boxes of integers from declared relations: one declaration for search, proof, sampling, enumeration and counts."""

"""Racks, power, money, reliability and the building around chips."""

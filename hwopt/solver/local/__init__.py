"""Local optimization from many starts: the augmented Lagrangian on optax."""

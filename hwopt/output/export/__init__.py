"""A plan that serves as the launch settings of the software that serves it, engine by engine."""

"""A training run: schedule, memory, batch ramps, learning."""

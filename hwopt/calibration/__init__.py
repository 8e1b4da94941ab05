"""Measured runs and the model's accuracy: data tables, validation, calibration, prediction intervals."""

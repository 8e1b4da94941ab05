"""What was measured, and how far the model is off it: tables of runs, validation, calibration, intervals, collectives."""

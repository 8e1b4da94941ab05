"""Calibration: fit of the model's constants to measured runs, evaluated on held-out runs."""

from hwopt.calibration.fit.calibrate import calibrate as calibrate
from hwopt.calibration.fit.screen import screen as screen

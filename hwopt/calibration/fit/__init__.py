"""Calibration: the model's constants fitted to measured runs, judged on runs that the fit has not seen."""

from hwopt.calibration.fit.calibrate import calibrate as calibrate
from hwopt.calibration.fit.screen import screen as screen

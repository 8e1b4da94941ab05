"""Calibration: the model's constants fitted to measured runs, judged on runs that the fit has not seen."""

from hwopt.evidence.calibration.calibrate import calibrate as calibrate
from hwopt.evidence.calibration.screen import screen as screen

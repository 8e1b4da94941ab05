"""Calibration: the model's constants fitted to measured runs, judged on runs that the fit has not seen."""

from hwopt.study.calibration.calibrate import calibrate as calibrate
from hwopt.study.calibration.calibrate import screen as screen

"""Validation of the model against published and user measurements: `validate` and its text output."""

from hwopt.calibration.validation.screen import screen as screen
from hwopt.calibration.validation.skip import SkipReason as SkipReason
from hwopt.calibration.validation.validate import validate as validate

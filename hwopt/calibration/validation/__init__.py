"""Published and own measured runs against the model: `validate` and its screen."""

from hwopt.calibration.validation.screen import screen as screen
from hwopt.calibration.validation.skip import SkipReason as SkipReason
from hwopt.calibration.validation.validate import validate as validate

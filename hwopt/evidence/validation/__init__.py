"""Published and own measured runs against the model: `validate` and its screen."""

from hwopt.evidence.validation.reasons import Reason as Reason
from hwopt.evidence.validation.screen import screen as screen
from hwopt.evidence.validation.validate import validate as validate

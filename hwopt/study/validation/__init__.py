"""Published and own measured training runs against the model: `validate` and its screen."""

from hwopt.study.validation.reasons import Reason as Reason
from hwopt.study.validation.screen import screen as screen
from hwopt.study.validation.study import validate as validate

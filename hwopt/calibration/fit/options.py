"""Options of a fit of the model's constants to measured runs."""

from dataclasses import dataclass

from hwopt.options import Options, option


@dataclass(frozen=True)
class FitOptions(Options):
    """Options of the fit of constants to measured runs, and of the held-out evaluation (`hwopt.calibrate`)."""

    steps: int = option(12, 1, 10**5)
    """Maximum number of Gauss-Newton steps, each with new slopes of the model."""
    inner_steps: int = option(80, 1, 10**6)
    """Number of L-BFGS iterations of a step, on the linearized model."""
    tries: int = option(6, 1, 1000)
    """Maximum number of damped attempts of a step, until the objective falls."""
    least_gain: float = option(1e-4, 0.0, 1.0)
    """Relative decrease of the objective that ends the fit."""
    folds: int = option(10, 2, 10**4)
    """Maximum number of groups held out in turn, where all runs are of one source and cell."""
    fixed_sd: float = option(1e-4, 1e-12, 1.0)
    """Prior standard deviation of a constant that is not to move, log units."""
    wide: float = option(3.0, 1.0, 1e3)
    """Factor on the prior standard deviation of constants that are requested by name."""


FIT = FitOptions()
"""Default options."""

"""Design-space sweeps: evaluate millions of design variants into one labeled xarray dataset."""

from hwopt.sweeps.entry import opened, sweep
from hwopt.sweeps.run import Progress

__all__ = ["Progress", "opened", "sweep"]

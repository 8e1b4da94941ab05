"""Design-space sweeps: millions of variants as one labelled dataset."""

from hwopt.sweeps.entry import opened, sweep
from hwopt.sweeps.run import Progress

__all__ = ["Progress", "opened", "sweep"]

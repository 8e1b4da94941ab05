"""Design-space sweeps: millions of variants as one labelled dataset."""

from hwopt.sweep.entry import opened, sweep
from hwopt.sweep.run import Progress

__all__ = ["Progress", "opened", "sweep"]

"""Design-space sweeps: millions of variants as one labelled dataset."""

from hwopt.study.sweep.run import Progress
from hwopt.study.sweep.study import opened, sweep

__all__ = ["Progress", "opened", "sweep"]

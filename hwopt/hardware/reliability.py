"""How often chips interrupt a job, and how fast it saves itself and comes back."""

from __future__ import annotations

import equinox as eqx

from hwopt.types import Scalar


class Reliability(eqx.Module):
    """Interruptions of a job by its chips and what surrounds them, and the way out."""

    failures_per_chip_s: Scalar  # interruptions of a job from every cause, per chip, at the reference junction
    hardware_share: Scalar  # of them, the part that is chip hardware and grows with temperature
    failure_growth_per_k: Scalar  # of that part, exp(growth (T - reference))
    reference_junction_k: Scalar
    restart_s: Scalar  # detect, replace, start again, warm up; without reading the checkpoint
    snapshot_bandwidth_bytes_per_s: Scalar  # chip to host memory, while the job waits
    snapshot_overhead_s: Scalar  # of a save whatever its size: barrier, serialising

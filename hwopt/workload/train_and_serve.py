"""A model that is trained on one machine and then served on another of the same chips."""

from __future__ import annotations

import equinox as eqx

from hwopt.stack import Stack
from hwopt.types import Scalar
from hwopt.workload.service import Service
from hwopt.workload.training import TrainingRun


class TrainAndServe(eqx.Module):
    """A training run, and the service of what it made: two machines, one chip."""

    training: TrainingRun
    service: Service
    served_tokens: Scalar  # generated over the life of the service
    stack: Stack  # software that serves; the cluster's trains

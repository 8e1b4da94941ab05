"""A model that is trained on one machine and then served on another of the same chips."""

import equinox as eqx

from hwopt.quantity import quantity
from hwopt.stack import Stack
from hwopt.types import Scalar
from hwopt.workload.service import Service
from hwopt.workload.training import TrainingRun


class TrainServe(eqx.Module):
    """A training run, and the service of what it made: two machines, one chip."""

    training: TrainingRun
    service: Service
    stack: Stack  # software that serves; the cluster's trains
    served_tokens: Scalar = quantity("token", "generated over the life of the service")

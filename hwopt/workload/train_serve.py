"""A model that is trained on one machine and then served on another with the same type of chip."""

import equinox as eqx

from hwopt.quantity import quantity
from hwopt.stack import Stack
from hwopt.types import Scalar
from hwopt.workload.service import Service
from hwopt.workload.training import TrainingRun


class TrainServe(eqx.Module):
    """A training run and the service of the trained model: two machines with one type of chip."""

    training: TrainingRun
    service: Service
    stack: Stack  # serving software; the training software is the cluster's
    served_tokens: Scalar = quantity("token", "generated over the life of the service")

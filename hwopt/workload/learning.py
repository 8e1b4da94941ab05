"""A published scaling law: the loss of a model by parameters, tokens and batch size."""

import equinox as eqx

from hwopt.quantity import exponent, quantity, ratio
from hwopt.types import Scalar


class LossLaw(eqx.Module):
    """Loss in nats per token, `L = E + A / N^alpha + B / D^beta`, and the critical batch, above which tokens are wasted.

    The critical batch is `B_ref (D / D_ref)^a L^-b`. This form covers two families of laws. It grows only with the
    tokens of the run in Zhang 2024 and Bergsma 2025 (a = 0.46 to 0.47, b = 0). It depends only on the loss reached in
    Kaplan 2020 (a = 0, b = 1 / 0.21, B_ref = 2e8). For b >= 0 the overhead `1 + B / B_crit` is log-log convex in batch,
    tokens and parameters.
    """

    irreducible_loss: Scalar = ratio("E")
    parameter_coefficient: Scalar = ratio("A")
    parameter_exponent: Scalar = exponent("alpha")
    token_coefficient: Scalar = ratio("B")
    token_exponent: Scalar = exponent("beta")
    critical_batch_tokens: Scalar = quantity("token", "B_ref, at the reference tokens and a loss of 1 nat where b > 0")
    critical_reference_tokens: Scalar = quantity("token", "D_ref")
    critical_token_exponent: Scalar = exponent("a, below 1")
    critical_loss_exponent: Scalar = exponent("b")
    repetition_epochs: Scalar = ratio("R*, repetitions after which repeated data has given 1 - 1/e of what it can")
    moe_exponent: Scalar = exponent("weight of all parameters against active ones, 0 to 1", most=1.0)
    replica_exponent: Scalar = exponent("of the replicas that train apart: loss grows as M^r")

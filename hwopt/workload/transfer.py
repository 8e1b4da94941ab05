"""What a model brings along from pre-training on something else: a published law of transfer."""

import equinox as eqx

from hwopt.quantity import exponent, ratio
from hwopt.types import Scalar


class Transfer(eqx.Module):
    """Data that pre-training is worth, `D_T = k D_F^alpha N^beta`: characters, D_F of them at hand, of N parameters."""

    transfer_coefficient: Scalar = ratio("k, of characters")
    data_exponent: Scalar = exponent("alpha, of the data at hand")
    size_exponent: Scalar = exponent("beta, of the parameters")
    characters_per_token: Scalar = ratio("characters in a token of the new data")

"""Benefit of pre-training on other data: a published law of transfer."""

import equinox as eqx

from hwopt.quantity import exponent, ratio
from hwopt.types import Scalar


class Transfer(eqx.Module):
    """Law of transfer: pre-training on other data replaces `D_T = k D_F^alpha N^beta` characters of new data.

    D_F is the number of available characters of new data, N the number of parameters.
    """

    transfer_coefficient: Scalar = ratio("k, of characters")
    data_exponent: Scalar = exponent("alpha, of the data at hand")
    size_exponent: Scalar = exponent("beta, of the parameters")
    characters_per_token: Scalar = ratio("characters in a token of the new data")
